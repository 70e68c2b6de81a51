"""Checks that every request must pass first: Host, Origin, token, size."""

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
"""No request has more to say; a body is held whole."""
MAX_TARGET_BYTES = 8 << 10
"""Limit of path and query string, in bytes."""
ANSWER_HEADERS = {
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
    "cross-origin-resource-policy": "same-origin",
}
"""Browsers must not cache answers, guess another type for them, or embed them in pages of other sites."""
_LAST = {"connection": "close"}
"""What is still coming is not read, and who may not ask does not keep one of the connections by asking."""


class Guard:
    """ASGI middleware.

    * *Host*: on loopback it must name this machine, or a page of somebody else's, whose name was made to point here
      (DNS rebinding), could read and steer everything.
    * *Origin*: a browser's request for a page of another origin is refused; there are no CORS headers at all.
    * *Authorization*: ``Bearer <token>`` where the service has a token, compared in constant time. The web UI's own
      files need none: they tell nothing, and ask for the token.
    * *Size*: at most ``MAX_BODY_BYTES`` of body, announced or not.

    Every answer has ``ANSWER_HEADERS``, refusals included, except the web UI's own files.
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
    """``host:port`` of an origin; empty for ``null`` and what is none."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


@lru_cache(maxsize=64)  # a client says the same with every request
def _names_loopback(host: str) -> bool:
    try:
        name = urlsplit(f"//{host}").hostname
    except ValueError:
        return False
    return bool(name) and is_loopback(str(name))


async def _bounded_body(receive: Receive) -> bytes | None:
    """All of it; None if it is too much."""
    body = b""
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return body  # the client is gone
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
