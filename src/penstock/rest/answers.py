"""Resources as they are sent, and the newest of them kept for whoever asks next."""

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
"""Answers: of a query with 1,000 subtasks the largest has about 250 KB."""
JSON = "application/json"
_KEEP = "penstock.keep"
"""In the scope of a request whose answer may be kept: who keeps it."""


def answer(resource: BaseModel, status: int = 200, headers: Mapping[str, str] = NO_HEADERS) -> Response:
    """Encode a resource as a JSON response, once.

    If a route returned the resource itself, FastAPI would build and validate all of it a second time on another thread.
    So routes name the resource as their ``response_model``, for OpenAPI, and return this response.
    """
    return Response(resource.model_dump_json(), status, headers=dict(headers), media_type=JSON)


class KeptAnswer(Response):
    """An answer that was made of some facts and of nothing else, and is good for as long as they are what they were.

    Args:
        content: as it is sent.
        facts: what it was made of. They were looked up before.
        again: looks the same up again, quickly; it raises ProblemError if that is not there any more.
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
        """To compare facts takes little, for those that have not changed are mostly the same objects."""
        try:
            return [self._again()] == [self._facts]  # lists: the same object is equal to itself without a look into it
        except ProblemError:
            return False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        keep = scope.get(_KEEP)
        if keep is not None:
            keep(self)
        await super().__call__(scope, receive, send)


class KeptAnswers:
    """ASGI middleware: whoever asks the same again is answered here while the answer is good.

    More than half of what a request costs is to find its route and to make the answer, and while a driver does that,
    its other threads wait, those that take checkpoints, too. Only on the service's own thread, and behind whatever may
    refuse a request. Nothing outlives a request that may change something.
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
                self._changes += 1  # what is being looked up now may be of the time before
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
