"""Resources as they are sent, and the newest of them kept for whoever asks next."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from types import MappingProxyType

from fastapi import Response
from pydantic import BaseModel

NO_HEADERS: Mapping[str, str] = MappingProxyType({})
MAX_KEPT = 32
"""Answers: of a query with 1,000 subtasks the largest has about 250 KB."""


def answer(resource: BaseModel, status: int = 200, headers: Mapping[str, str] = NO_HEADERS) -> Response:
    """As JSON, encoded once. A route that returned the resource itself would have FastAPI make and check all of it a
    second time, on a thread of its own; so routes name it as their ``response_model``, for OpenAPI, and return this."""
    return answer_json(resource.model_dump_json(), status, headers)


def answer_json(content: str | bytes, status: int = 200, headers: Mapping[str, str] = NO_HEADERS) -> Response:
    return Response(content, status, headers=dict(headers), media_type="application/json")


class KeptAnswers:
    """What is large is made again when it would be another, and not for every request: subtasks report their figures
    twice a second. Only on the service's own thread.

    An answer is kept with the facts that it was made of, and is good for facts that are equal to them: it cannot be out
    of date. To compare them takes little, for facts that have not changed are mostly the same objects.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[Hashable, tuple[object, bytes]] = OrderedDict()

    def get(self, asked: Hashable, facts: object, make: Callable[[], str | bytes]) -> bytes:
        """What is kept for the request ``asked``, or what ``make`` makes of these facts and of nothing else."""
        kept = self._kept.get(asked)
        if kept is None or kept[0] != facts:
            made = make()
            kept = self._kept[asked] = facts, made.encode() if isinstance(made, str) else made
        self._kept.move_to_end(asked)
        while len(self._kept) > MAX_KEPT:
            self._kept.popitem(last=False)
        return kept[1]


KEPT_ANSWERS = KeptAnswers()
