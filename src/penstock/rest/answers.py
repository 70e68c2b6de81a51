"""Responses of the REST service, and a cache of the newest ones."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

from fastapi import Response
from pydantic import BaseModel
from starlette.types import ASGIApp, Receive, Scope, Send

from penstock.rest.problems import ProblemError

NO_HEADERS: Mapping[str, str] = MappingProxyType({})
MAX_KEPT = 32
"""Most cached answers. The largest answer about a query with 1,000 subtasks has about 250 KB."""
JSON = "application/json"
_KEEP = "penstock.keep"
"""Key in a request's scope: the function that caches the answer."""


def answer(resource: BaseModel, status: int = 200, headers: Mapping[str, str] = NO_HEADERS) -> Response:
    """Encode a resource as a JSON response.

    If a route returned the resource itself, FastAPI would build and validate it a second time on another thread.
    Therefore routes declare the resource as ``response_model``, for OpenAPI, and return this response.
    """
    return Response(resource.model_dump_json(), status, headers=dict(headers), media_type=JSON)


class KeptAnswer(Response):
    """Cacheable answer. It depends only on some facts, and is valid while they are unchanged.

    Args:
        content: body of the response.
        facts: the facts that the content was made from.
        again: looks up the current facts; it must be fast. It raises ProblemError if they no longer exist.
    """

    def __init__(
        self,
        content: str | bytes,
        facts: object,
        again: Callable[[], object],
        headers: Mapping[str, str] = NO_HEADERS,
        media_type: str = JSON,
    ) -> None:
        super().__init__(content, headers=dict(headers), media_type=media_type)
        self._facts = facts
        self._again = again

    def is_good(self) -> bool:
        """Return True if the facts are unchanged. This is fast, as unchanged facts are mostly the same objects."""
        try:
            return [self._again()] == [self._facts]  # lists compare elements by identity before equality
        except ProblemError:
            return False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        keep = scope.get(_KEEP)
        if keep is not None:
            keep(self)
        await super().__call__(scope, receive, send)


class KeptAnswers:
    """ASGI middleware that answers repeated GET requests from a cache while the cached answer is valid.

    Routing a request and creating its answer is more than half of its cost. While the driver does that, its other
    threads wait for the interpreter, including those that take checkpoints.

    It must run on the service's own thread, after all checks that may refuse a request. Any other request than GET
    clears the cache.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._kept: OrderedDict[tuple[bytes, bytes], KeptAnswer] = OrderedDict()
        self._changes = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "GET":
            try:
                await self._app(scope, receive, send)
            finally:
                self._changes += 1  # an answer in progress may contain facts from before the change
                self._kept.clear()
            return
        request = scope["raw_path"], scope["query_string"]
        kept = self._kept.get(request)
        if kept is not None and kept.is_good():
            self._kept.move_to_end(request)
            await kept(scope, receive, send)
            return
        keep = partial(self._keep, request, self._changes)
        await self._app({**scope, _KEEP: keep}, receive, send)

    def _keep(self, request: tuple[bytes, bytes], changes: int, answer: KeptAnswer) -> None:
        if changes != self._changes:
            return
        self._kept[request] = answer
        self._kept.move_to_end(request)
        while len(self._kept) > MAX_KEPT:
            self._kept.popitem(last=False)
