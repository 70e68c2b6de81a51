"""Checks that every request must pass before it is routed: Host, Origin, token, size."""

from __future__ import annotations

import hmac
from functools import lru_cache
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.config import natural
from penstock.rest.pages import is_page
from penstock.rest.problems import problem
from penstock.rest.settings import ServerSettings, is_loopback

MAX_BODY_BYTES = 64 << 10
"""Largest request body. A body is held in memory as a whole."""
MAX_TARGET_BYTES = 8 << 10
"""Limit of path and query string, in bytes."""
ANSWER_HEADERS = {
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
    "cross-origin-resource-policy": "same-origin",
}
"""Browsers must not cache answers, guess another type for them, or embed them in pages of other sites."""
_LAST = {"connection": "close"}
"""Headers of a refusal after which the connection is closed: the rest of the request is not read, and an untrusted
client does not occupy a connection."""


class Guard:
    """ASGI middleware that checks every request.

    * *Host*: on loopback it must name this machine. Otherwise a foreign web page whose name resolves to this machine
      (DNS rebinding) could read and control everything.
    * *Origin*: requests from pages of another origin are refused. No CORS headers are sent.
    * *Authorization*: must be ``Bearer <token>`` if the service has a token. Tokens are compared in constant time. The
      files of the web UI require no token: they contain no data, and the UI asks the user for the token.
    * *Size*: the body has at most ``MAX_BODY_BYTES``, with or without a ``Content-Length``.

    Every answer has ``ANSWER_HEADERS``, also a refusal; only the files of the web UI have their own headers.
    """

    def __init__(self, app: ASGIApp, settings: ServerSettings) -> None:
        self._app = app
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        if not is_page(scope["path"]):
            send = _with_headers(send)
        refusal = self._refusal(scope)
        if refusal is not None:
            status, detail, headers = refusal
            await problem(status, detail, instance=scope["path"], headers=headers)(scope, receive, send)
            return
        body = await _bounded_body(receive)
        if body is None:
            detail = f"the body has more than {MAX_BODY_BYTES} bytes, which no request needs"
            await problem(413, detail, instance=scope["path"], headers=_LAST)(scope, receive, send)
            return
        await self._app(scope, _replayed(body, receive), send)

    def _refusal(self, scope: Scope) -> tuple[int, str, dict[str, str]] | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if self._settings.loopback and not _names_loopback(host):
            return 421, f"this service answers to localhost and loopback addresses, not to {host!r:.100}", _LAST
        origin = headers.get("origin")
        if origin is not None and urlsplit_host(origin) != host.lower():
            return 403, f"pages of {origin!r:.100} may not use this service: cross-origin requests are closed", _LAST
        if not is_page(scope["path"]) and not self._knows_token(headers):
            challenge = {"www-authenticate": 'Bearer realm="penstock"', **_LAST}
            return 401, "the token is missing or wrong: send it as Authorization: Bearer <token>", challenge
        if len(scope["raw_path"]) + len(scope["query_string"]) > MAX_TARGET_BYTES:
            return 414, f"the path has more than {MAX_TARGET_BYTES} bytes", {}
        announced = natural(headers.get("content-length", "0"))
        if announced is None or announced > MAX_BODY_BYTES:
            return 413, f"the body has more than {MAX_BODY_BYTES} bytes, which no request needs", _LAST
        return None

    def _knows_token(self, headers: Headers) -> bool:
        if not self._settings.token:
            return True
        scheme, _, given = headers.get("authorization", "").partition(" ")
        same = hmac.compare_digest(given.strip().encode(), self._settings.token.encode())
        return same and scheme.lower() == "bearer"


def _with_headers(send: Send) -> Send:
    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in ANSWER_HEADERS.items():
                headers[name] = value
        await send(message)

    return sent


def urlsplit_host(origin: str) -> str:
    """Return ``host:port`` of an origin in lower case; empty for ``null`` and malformed origins."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


@lru_cache(maxsize=64)  # a client sends the same host with every request
def _names_loopback(host: str) -> bool:
    try:
        name = urlsplit(f"//{host}").hostname
    except ValueError:
        return False
    return bool(name) and is_loopback(str(name))


async def _bounded_body(receive: Receive) -> bytes | None:
    """Return the whole body; None if it is larger than ``MAX_BODY_BYTES``."""
    body = b""
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return body  # the client has disconnected
        part: bytes = message.get("body", b"")
        body += part
        if len(body) > MAX_BODY_BYTES:
            return None
        if not message.get("more_body", False):
            return body


def _replayed(body: bytes, receive: Receive) -> Receive:
    replayed = False

    async def once() -> Message:
        nonlocal replayed
        if replayed:
            return await receive()
        replayed = True
        return {"type": "http.request", "body": body, "more_body": False}

    return once
