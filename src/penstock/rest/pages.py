"""Files of the web UI, at ``/`` and below ``/ui/``.

The files are the same for all users and contain no data of queries, so they require no token. The UI requests its data
from the REST service, like any other client.

All files but the page itself are in a folder that is named after a digest of their contents. So browsers may cache them
forever, and another release has other paths.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from penstock.rest.problems import problem

FOLDER = Path(__file__).parent / "ui"
PREFIX = "/ui/"
MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        # Names of queries and error texts are untrusted: no string may become markup.
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
HEADERS = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
ASKED_AGAIN = "no-cache"
"""Caching of the page that refers to the other files: a browser revalidates it each time and mostly gets 304."""
KEPT = "public, max-age=31536000, immutable"


@dataclass(frozen=True)
class Page:
    """One file with its response headers."""

    body: bytes
    media_type: str
    etag: str
    cache_control: str = ASKED_AGAIN


def is_page(path: str) -> bool:
    """Return True if ``Pages`` answers this request."""
    return path == "/" or path.startswith(PREFIX)


def load_pages(folder: Path = FOLDER) -> dict[str, Page]:
    """Return all files by their paths on the server.

    They are read once, so no path in a request is ever used as a path of this machine.
    """
    bodies = {file.name: file.read_bytes() for file in sorted(folder.iterdir()) if file.suffix in MEDIA_TYPES}
    release = f"{PREFIX}{_digest(b''.join(bodies.values()))[:16]}/"
    first = bodies.pop("index.html").replace(PREFIX.encode(), release.encode())
    pages = {release + name: _page(name, body, KEPT) for name, body in bodies.items()}
    return {"/": _page("index.html", first, ASKED_AGAIN), **pages}


def _page(name: str, body: bytes, cache_control: str) -> Page:
    return Page(body, MEDIA_TYPES[Path(name).suffix], f'"{_digest(body)[:24]}"', cache_control)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


class Pages:
    """ASGI middleware that answers ``is_page`` paths itself and passes on all other requests."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._pages = load_pages()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not is_page(scope["path"]):
            await self._app(scope, receive, send)
            return
        await self._answer(scope)(scope, receive, send)

    def _answer(self, scope: Scope) -> Response:
        path, method = scope["path"], scope["method"]
        page = self._pages.get(path)
        if page is None:
            return problem(404, f"the web UI has no {path!r:.100}; it is at /", instance=path)
        if method not in ("GET", "HEAD"):
            text = f"{method} is not for {path}; the web UI is only read"
            return problem(405, text, instance=path, headers={"allow": "GET, HEAD"})
        headers = {**HEADERS, "etag": page.etag, "cache-control": page.cache_control}
        known = Headers(scope=scope).get("if-none-match", "")
        if page.etag in [one.strip().removeprefix("W/") for one in known.split(",")]:
            return Response(status_code=304, headers=headers)
        if method == "HEAD":
            return Response(headers={**headers, "content-length": str(len(page.body))}, media_type=page.media_type)
        return Response(page.body, headers=headers, media_type=page.media_type)
