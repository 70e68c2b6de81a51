"""A REST service that answers what a test tells it to: well, badly, or not at all."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

ID = "5b0c1f2e-0000-4000-8000-000000000001"
QUERY = f"/api/v1/queries/{ID}"


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True)
class Reply:
    """``document`` as JSON, unless ``raw`` has the whole answer, head and all, byte for byte."""

    document: Any = None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    raw: bytes | None = None
    pause_s: float = 0.0
    """After each byte of ``raw``."""


Route = Reply | Callable[[Request], Reply]


class FakeService:
    """Listens on loopback. ``routes``: by method and path without the query string."""

    def __init__(self) -> None:
        self.routes: dict[str, Route] = {}
        self.requests: list[Request] = []
        self._server: ThreadingHTTPServer | None = None
        self._port = 0
        self.begin()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def begin(self) -> None:
        """Start the service on the same port as before."""
        fake = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                length = int(self.headers.get("Content-Length", 0))
                request = Request(self.command, self.path, dict(self.headers), self.rfile.read(length))
                fake.requests.append(request)
                fake._answer(self, request)

            do_PATCH = do_POST = do_DELETE = do_GET  # noqa: N815

            def log_message(self, *arguments: object) -> None:
                """Tests look at ``requests``."""

        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), Handler)
        self._server.daemon_threads = True
        self._port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def end(self) -> None:
        """Nobody listens any more. Idempotent."""
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()

    def asked(self, method: str, path: str = "") -> list[Request]:
        return [one for one in self.requests if one.method == method and one.path.startswith(path)]

    def _answer(self, handler: BaseHTTPRequestHandler, request: Request) -> None:
        route = self.routes.get(f"{request.method} {request.path.partition('?')[0]}", problem(404, "not in this test"))
        reply = route(request) if callable(route) else route
        handler.close_connection = True
        if reply.raw is not None:
            with suppress(ConnectionError):  # whoever asked has had enough
                _send_raw(handler, reply)
            return
        body = json.dumps(reply.document).encode()
        handler.send_response(reply.status)
        for name, value in {
            "Content-Type": "application/json",
            "Content-Length": str(len(body)),
            **reply.headers,
        }.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(body)


def _send_raw(handler: BaseHTTPRequestHandler, reply: Reply) -> None:
    raw = reply.raw or b""
    if not reply.pause_s:
        handler.wfile.write(raw)
        return
    for byte in raw:
        handler.wfile.write(bytes([byte]))
        time.sleep(reply.pause_s)


@contextmanager
def fake_service() -> Iterator[FakeService]:
    service = FakeService()
    try:
        yield service
    finally:
        service.end()


def problem(status: int, detail: str) -> Reply:
    document = {"type": "about:blank", "title": "No", "status": status, "detail": detail}
    return Reply(document, status, {"Content-Type": "application/problem+json"})


def query_document(**changes: Any) -> dict[str, Any]:
    """``wanted`` (state), ``parallelism``, ``interval_ms``: of the spec; ``state``, ``restarts``...: of the status."""
    spec = {"state": "running", "parallelism": 2, "checkpoint": {"interval_ms": 1000, "alignment": "auto"}}
    status = {
        "state": "running", "converged": True, "message": "Processing new data", "generation": 3, "parallelism": 2,
        "max_parallelism": 128, "committed_epoch": 1234, "inflight_bytes": 3 << 20, "sources_dry": False,
        "checkpoints_completed": 1234, "checkpoints_failed": 1, "restarts": 1, "slots": [], "error": None,
        "operations": [],
    }  # fmt: skip
    query = {"id": ID, "run_id": "run-1", "name": "sums", "location": "/chk", "last_progress": None}
    spec["state"] = changes.pop("wanted", "running")
    spec["parallelism"] = changes.pop("parallelism", 2)
    spec["checkpoint"] = {"interval_ms": changes.pop("interval_ms", 1000), "alignment": "auto"}
    status |= {name: changes.pop(name) for name in list(changes) if name in status}
    return {**query, **changes, "spec": spec, "status": status}


def operation_document(verb: str = "rescale", state: str = "running", **more: Any) -> dict[str, Any]:
    progress = {"message": "Recovering as generation 4", "done": 1, "total": 4} if state == "running" else None
    return {"id": "op-1", "query_id": ID, "verb": verb, "state": state, "progress": progress, "error": None, **more}


_VERBS = {"stopped": "stop", "suspended": "suspend", "running": "resume"}


class SteeredQuery:
    """The routes of one query whose spec can be changed, guarded by its tag."""

    def __init__(self, service: FakeService) -> None:
        self.document = query_document()
        self.version = 1
        self.before_patch: Callable[[], None] = lambda: None
        """What somebody else does between the reading and the writing; once."""
        self.operation: Route = Reply(operation_document(state="succeeded"))
        service.routes |= {
            "GET /api/v1/queries": lambda _: Reply({"queries": [self.document]}),
            f"GET {QUERY}": lambda _: Reply(self.document, headers={"ETag": self.tag}),
            f"PATCH {QUERY}": self._patch,
            "GET /api/v1/operations/op-1": lambda request: (
                self.operation(request) if callable(self.operation) else self.operation
            ),
        }

    @property
    def tag(self) -> str:
        return f'"{self.version}"'

    def change(self, **changes: Any) -> None:
        self.document = query_document(**changes)
        self.version += 1

    def _patch(self, request: Request) -> Reply:
        interfere, self.before_patch = self.before_patch, lambda: None
        interfere()
        if request.headers["If-Match"] != self.tag:
            return problem(412, "another client has changed the spec: GET it again")
        spec = json.loads(request.body)["spec"]
        if spec.get("state") == self.document["spec"]["state"]:
            return Reply(self.document, headers={"ETag": self.tag})
        if "checkpoint" in spec:
            self.change(interval_ms=spec["checkpoint"]["interval_ms"])
            return Reply(self.document, headers={"ETag": self.tag})
        if spec == {"parallelism": self.document["spec"]["parallelism"]}:
            return Reply(self.document, headers={"ETag": self.tag})
        self.version += 1
        return Reply(operation_document(_VERBS.get(spec.get("state"), "rescale")), 202)
