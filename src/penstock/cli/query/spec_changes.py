"""Changes of a query's spec. The entity tag detects concurrent changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import msgspec

from penstock.cli.query.models import Operation, Query, understood
from penstock.cli.query.service import Service
from penstock.cli.texts import one_line
from penstock.errors import NoAnswer, ServiceRefused

ATTEMPTS = 5
"""Number of attempts while another client changes the same spec between reading and writing."""


@dataclass(frozen=True)
class SpecChange:
    """Result of a change.

    Attributes:
        query: the query before the change.
        changes: requested members of the spec.
        operation: operation that was begun; None if the change took effect at once.
        changed: True if the spec was different before.
    """

    query: Query
    changes: Mapping[str, Any]
    operation: Operation | None
    changed: bool


def change_spec(
    service: Service, query_id: str, changes: Mapping[str, Any], extra_members: Mapping[str, Any] | None = None
) -> SpecChange:
    """Change the spec of a query.

    Another client may change the spec between reading and writing. If it changed other members, the change is tried
    again. If it changed the same members, nothing is done.

    Args:
        changes: merge patch of the spec.
        extra_members: other members of the request's body.

    Raises:
        ServiceRefused: the service refuses the change, or another client changed the same members (412).
        ServiceUnreachable, NoAnswer: see ``Service.patch``.
    """
    before_change, tag = _read(service, query_id)
    for _ in range(ATTEMPTS):
        changed = _members(before_change, changes) != _flat(changes)
        try:
            answer = service.patch("queries", query_id, changes={"spec": changes, **(extra_members or {})}, tag=tag)
        except ServiceRefused as refusal:
            if refusal.status != HTTPStatus.PRECONDITION_FAILED:
                raise
        except NoAnswer as error:
            raise NoAnswer(
                f"{error}; it is not known whether the query is changed: "
                f"`penstock query show {before_change.short_id}` tells"
            ) from error
        else:
            begun = answer.status == HTTPStatus.ACCEPTED
            operation = understood(service, answer.document, Operation) if begun else None
            return SpecChange(before_change, changes, operation, changed)
        now, tag = _read(service, query_id)
        _refuse_conflict(before_change, now, changes)
        before_change = now
    raise ServiceRefused(
        f"other clients changed the spec of {before_change.called} in each of {ATTEMPTS} attempts; nothing was done",
        HTTPStatus.PRECONDITION_FAILED,
    )


def _read(service: Service, query_id: str) -> tuple[Query, str]:
    answer = service.get("queries", query_id)
    return understood(service, answer.document, Query), answer.tag


def _refuse_conflict(before: Query, now: Query, changes: Mapping[str, Any]) -> None:
    if now.run_id != before.run_id:
        raise ServiceRefused(
            f"{now.called} was started anew meanwhile; nothing was done: say it again if you still want it",
            HTTPStatus.PRECONDITION_FAILED,
        )
    were, are, requested = _members(before, changes), _members(now, changes), _flat(changes)
    for member, value in are.items():
        if value != were[member] and value != requested[member]:
            raise ServiceRefused(
                f"another client changed {member} of {now.called} from {were[member]} to {one_line(str(value))}; "
                f"nothing was done: say it again if you still want {requested[member]}",
                HTTPStatus.PRECONDITION_FAILED,
            )


def _members(query: Query, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the current values of the members that ``changes`` has."""
    current = _flat(msgspec.to_builtins(query.spec))
    return {member: current.get(member) for member in _flat(changes)}


def _flat(spec: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Return ``{"checkpoint": {"interval_ms": 5}}`` as ``{"checkpoint.interval_ms": 5}``."""
    members: dict[str, Any] = {}
    for name, value in spec.items():
        members |= _flat(value, f"{above}{name}.") if isinstance(value, Mapping) else {f"{above}{name}": value}
    return members
