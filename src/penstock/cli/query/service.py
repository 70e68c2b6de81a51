"""HTTP client of Penstock's REST service: one short request at a time.

It uses only the standard library. Every request has its own connection, a time limit and a size limit. The client
follows no redirects, because they would receive the token, and it uses no proxy.
"""

from __future__ import annotations

import http.client
import json
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import SplitResult, quote, urlsplit

from penstock.cli.texts import one_line
from penstock.errors import ConfigError, NoAnswer, ServiceRefused, ServiceUnreachable
from penstock.snapshots.format.envelope import exceeds_value_limit

TIMEOUT_S = 10.0
"""Timeout of a whole request. The service answers most requests from memory."""
MAX_ANSWER_BYTES = 32 << 20
"""Largest answer. It is a hundred times the size of the largest answer about a query."""
MAX_REFUSAL = 300
"""Most characters that are printed of an answer that is not a problem document."""
JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"


@dataclass(frozen=True)
class Answer:
    """Answer of the service: the JSON document and its entity tag (empty without one). ``status`` is 2xx."""

    status: int
    document: Any
    tag: str


@dataclass(frozen=True)
class Service:
    """Address of a service, and the token for it. ``service_at`` creates it. ``tls``: trusted certificates."""

    address: SplitResult
    token: str | None = field(default=None, repr=False)
    timeout_s: float = TIMEOUT_S
    tls: ssl.SSLContext | None = field(default=None, repr=False)

    @property
    def url(self) -> str:
        return self.address.geturl().rstrip("/")

    def get(self, *path: str, query: str = "") -> Answer:
        """Return the resource at ``/api/v1/<path>``. The parts of the path are quoted.

        Raises:
            ServiceUnreachable: there is no connection to the service.
            ServiceRefused: the service refuses the request. The text has its reason.
            NoAnswer: the answer is incomplete, too late, too large, or not an answer of Penstock's service.
        """
        return self._ask("GET", _joined(path) + (f"?{query}" if query else ""))

    def patch(self, *path: str, changes: object, tag: str = "") -> Answer:
        """Send a merge patch for a resource. ``tag``: its entity tag; empty if the resource has no tag.

        Errors: see ``get``. After NoAnswer the change may have been made.
        """
        guard = {"If-Match": tag} if tag else {}
        return self._ask("PATCH", _joined(path), json.dumps(changes).encode(), {"Content-Type": MERGE_PATCH, **guard})

    def post(self, *path: str, body: object, key: str) -> Answer:
        """Begin an operation. Another request with the same key (visible ASCII) does not begin a new one.

        Errors: see ``get``. After NoAnswer the operation may have begun.
        """
        headers = {"Content-Type": JSON, "Idempotency-Key": key}
        return self._ask("POST", _joined(path), json.dumps(body).encode(), headers)

    def delete(self, *path: str, query: str = "") -> Answer:
        """Begin to delete a resource. Errors: see ``get``. After NoAnswer the deletion may have begun."""
        return self._ask("DELETE", _joined(path) + (f"?{query}" if query else ""))

    def _ask(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        deadline_s = time.monotonic() + self.timeout_s
        connection = self._connection()
        try:
            try:
                connection.connect()
            except ssl.SSLError as error:
                raise ServiceUnreachable(f"{self.url} is not taken for a service: {_distrust(error)}") from error
            except (OSError, UnicodeError) as error:
                raise ServiceUnreachable(
                    f"no REST service can be reached at {self.url}: {_why(error)}; the program of the query has to "
                    "run and to have called penstock.serve(), whose url goes into PENSTOCK_URL or --url"
                ) from error
            try:
                connection.request(method, self.address.path.rstrip("/") + path, body, self._headers(headers or {}))
                with connection.getresponse() as response:  # closed here, as garbage collection would swallow a Ctrl-C
                    text = _whole(response, deadline_s)
            except (OSError, http.client.HTTPException) as error:
                raise NoAnswer(f"{self.url} did not answer {method} {path}: {_why(error)}") from error
        finally:
            connection.close()
        return self._understood(response, text)

    def _connection(self) -> http.client.HTTPConnection:
        host, port = str(self.address.hostname), self.address.port
        if self.tls is None:
            return http.client.HTTPConnection(host, port, timeout=self.timeout_s)
        return http.client.HTTPSConnection(host, port, timeout=self.timeout_s, context=self.tls)

    def _headers(self, more: Mapping[str, str]) -> dict[str, str]:
        authorization = {} if self.token is None else {"Authorization": f"Bearer {self.token}"}
        return {"Accept": JSON, "Connection": "close", **authorization, **more}

    def _understood(self, response: http.client.HTTPResponse, text: bytes) -> Answer:
        status = response.status
        if 300 <= status < 400:
            target = one_line(response.headers.get("Location", "nowhere"), MAX_REFUSAL)
            raise ServiceRefused(
                f"{self.url} redirects to {target}: the token is not taken along; give the address itself", status
            )
        if status == HTTPStatus.UNAUTHORIZED:
            raise ServiceRefused(f"{self.url} {self._no_entrance()}", status)
        try:
            document = None if exceeds_value_limit(text) else json.loads(text)
        except (ValueError, RecursionError):
            document = None
        if status >= 400:
            raise ServiceRefused(_refusal(self.url, response, document, text), status)
        if document is None or not 200 <= status < 300:
            raise NoAnswer(f"what answers at {self.url} is no REST service of Penstock: its answer is no JSON document")
        return Answer(status, document, response.headers.get("ETag", ""))

    def _no_entrance(self) -> str:
        if self.token is None:
            return (
                "asks for a token: put it into PENSTOCK_TOKEN, or into a file that --token-file names; a service that "
                "makes its own token prints it at its start"
            )
        return "does not know the token that it was shown: see PENSTOCK_TOKEN, or the file that --token-file names"


def service_at(url: str, token: str | None = None, timeout_s: float = TIMEOUT_S, *, ca: str | None = None) -> Service:
    """Create the client of a service. Nothing is sent yet.

    Args:
        url: address of the service, ``http://HOST:PORT`` or ``https://HOST:PORT``.
        token: the token of the service; None: no token is sent.
        timeout_s: timeout of each request.
        ca: PEM file with the certificates to trust at an ``https`` address; None: those that this machine trusts.

    Raises:
        ConfigError: ``url`` is not the address of a service, ``token`` has characters that a header cannot carry, or
            ``ca`` is not a PEM file of certificates or is given without ``https``.
    """
    text = one_line(url, MAX_REFUSAL)
    try:
        parts = urlsplit(url)
        fits = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        fits = False
    if not fits or text != url or " " in url or not url.isascii():
        raise ConfigError(f"{text!r} is no address of a REST service: write for example http://127.0.0.1:4041")
    if parts.username is not None or parts.query or parts.fragment:
        raise ConfigError("the address of a REST service is http://HOST:PORT alone; a token goes into PENSTOCK_TOKEN")
    if token is not None and not (token and all("!" <= character <= "~" for character in token)):
        raise ConfigError("the token is empty, or has characters that none has: visible ASCII, without blanks")
    if ca is not None and parts.scheme != "https":
        raise ConfigError("--ca goes with an https:// address: what answers at another shows no certificate")
    return Service(parts, token, timeout_s, _trusting(ca) if parts.scheme == "https" else None)


def _trusting(ca: str | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca)
    except (OSError, ValueError) as error:
        why = "it holds no certificate in PEM" if isinstance(error, ssl.SSLError) else _why(error)
        raise ConfigError(f"--ca {one_line(str(ca), MAX_REFUSAL)} cannot be used: {why}") from error


def _distrust(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        why = one_line(error.verify_message, MAX_REFUSAL)
        return f"{why}; --ca FILE says whose certificate to trust, and the address has to be one that it is made for"
    if error.reason == "WRONG_VERSION_NUMBER":
        return "what answers there speaks no TLS; write http:// if that is meant"
    return _why(error)


def _joined(path: tuple[str, ...]) -> str:
    return "/api/v1/" + "/".join(quote(part, safe="") for part in path)


def _whole(response: http.client.HTTPResponse, deadline_s: float) -> bytes:
    """Return the whole body. Raises OSError or HTTPException if it is incomplete, too large, or too late."""
    announced, parts, size = response.length, [], 0
    while part := response.read1(1 << 16):
        parts.append(part)
        size += len(part)
        if size > MAX_ANSWER_BYTES:
            raise http.client.HTTPException(f"more than {MAX_ANSWER_BYTES >> 20} MiB")
        if size == announced:
            break
        if time.monotonic() > deadline_s:
            raise TimeoutError("timed out")
    if announced is not None and size < announced:
        raise http.client.HTTPException(f"{size} of {announced} bytes came, then the connection ended")
    return b"".join(parts)


def _refusal(url: str, response: http.client.HTTPResponse, document: Any, text: bytes) -> str:
    if isinstance(document, dict) and isinstance(document.get("detail"), str):
        return one_line(document["detail"])
    message = one_line(text.decode("utf-8", "replace"), MAX_REFUSAL)
    return f"{url} answered {response.status} {one_line(response.reason)}" + (f": {message}" if message else "")


def _why(error: Exception) -> str:
    if isinstance(error, http.client.IncompleteRead):
        return "the connection ended amid its answer"
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return one_line(text or type(error).__name__, MAX_REFUSAL)
