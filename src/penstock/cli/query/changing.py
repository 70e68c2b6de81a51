"""Changes the spec of a query, guarded by the tag of what was read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import msgspec

from penstock.cli.query.models import Operation, Query, understood
from penstock.cli.query.service import Service
from penstock.cli.query.texts import one_line
from penstock.errors import NoAnswer, ServiceRefused

ATTEMPTS = 5
"""Somebody else changes the same spec between our reading and our writing so many times, and we give up."""


@dataclass(frozen=True)
class Change:
    """What was brought about: ``query`` as it was before; ``wish``: the members that were asked for. ``operation``:
    what is under way, None where nothing takes its time. ``changed``: the spec said something else before."""

    query: Query
    wish: Mapping[str, Any]
    operation: Operation | None
    changed: bool


def change(service: Service, query_id: str, wish: Mapping[str, Any], beside: Mapping[str, Any] | None = None) -> Change:
    """Have the spec say ``wish``, a merge patch of it. ``beside``: what else goes with the request.

    Somebody may change the spec between our reading and our writing. If what we want to change is untouched by that,
    it is done all the same; else nothing is done, and who asked is told what it was changed to.

    Raises:
        ServiceRefused: the service does not want it, or somebody else was quicker (412).
        ServiceUnreachable, NoAnswer: as ``Service.patch``.
    """
    seen, tag = _read(service, query_id)
    for _ in range(ATTEMPTS):
        changed = _members(seen, wish) != _flat(wish)
        try:
            answer = service.patch("queries", query_id, changes={"spec": wish, **(beside or {})}, tag=tag)
        except ServiceRefused as refusal:
            if refusal.status != HTTPStatus.PRECONDITION_FAILED:
                raise
        except NoAnswer as error:
            raise NoAnswer(
                f"{error}; it is not known whether the query is changed: `penstock query show {seen.short_id}` tells"
            ) from error
        else:
            begun = answer.status == HTTPStatus.ACCEPTED
            operation = understood(service, answer.document, Operation) if begun else None
            return Change(seen, wish, operation, changed)
        now, tag = _read(service, query_id)
        _refuse_conflict(seen, now, wish)
        seen = now
    raise ServiceRefused(
        f"the spec of {seen.called} was changed by somebody else {ATTEMPTS} times amid this; nothing was done",
        HTTPStatus.PRECONDITION_FAILED,
    )


def _read(service: Service, query_id: str) -> tuple[Query, str]:
    answer = service.get("queries", query_id)
    return understood(service, answer.document, Query), answer.tag


def _refuse_conflict(before: Query, now: Query, wish: Mapping[str, Any]) -> None:
    if now.run_id != before.run_id:
        raise ServiceRefused(
            f"{now.called} was started anew meanwhile; nothing was done: say it again if you still want it",
            HTTPStatus.PRECONDITION_FAILED,
        )
    were, are, wanted = _members(before, wish), _members(now, wish), _flat(wish)
    for member, value in are.items():
        if value != were[member] and value != wanted[member]:
            raise ServiceRefused(
                f"somebody changed {member} of {now.called} from {were[member]} to {one_line(str(value))} meanwhile; "
                f"nothing was done: say it again if you still want {wanted[member]}",
                HTTPStatus.PRECONDITION_FAILED,
            )


def _members(query: Query, wish: Mapping[str, Any]) -> dict[str, Any]:
    """What the spec says now of the members of ``wish``."""
    said = _flat(msgspec.to_builtins(query.spec))
    return {member: said.get(member) for member in _flat(wish)}


def _flat(spec: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """``{"checkpoint": {"interval_ms": 5}}`` as ``{"checkpoint.interval_ms": 5}``."""
    members: dict[str, Any] = {}
    for name, value in spec.items():
        members |= _flat(value, f"{above}{name}.") if isinstance(value, Mapping) else {f"{above}{name}": value}
    return members
