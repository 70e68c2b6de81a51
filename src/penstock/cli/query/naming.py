"""Lookup of queries by name, by id, or by the beginning of an id."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus

from penstock.cli.query.models import Query, QueryList, understood
from penstock.cli.query.service import Service
from penstock.cli.texts import one_line
from penstock.errors import ServiceRefused

SHOWN = 5
"""Most queries that an error message lists."""


def all_queries(service: Service) -> list[Query]:
    """Return the running queries, then the last ones that ended. Errors: see ``Service.get``."""
    return understood(service, service.get("queries").document, QueryList).queries


def named_query(service: Service, text: str) -> Query:
    """Return the query that ``text`` names. If several have this name, the running one is returned.

    Raises:
        ServiceRefused: no query, or more than one, matches ``text``. Other errors: see ``Service.get``.
    """
    return chosen(all_queries(service), text, service.url)


def chosen(queries: Sequence[Query], text: str, address: str) -> Query:
    for fitting in (
        [query for query in queries if query.id == text],
        [query for query in queries if query.name == text and not query.over],
        [query for query in queries if query.name == text],
        [query for query in queries if text and query.id.startswith(text)],
    ):
        if len(fitting) == 1:
            return fitting[0]
        if fitting:
            raise ServiceRefused(
                f"{_said(text)} fits {len(fitting)} queries: {_listed(fitting)}; write more of the id of one, as "
                f"{one_line(fitting[0].id)}",
                HTTPStatus.CONFLICT,
            )
    listing = f"it knows {_listed(queries)}" if queries else "it knows none; they are known while their driver runs"
    raise ServiceRefused(f"there is no query {_said(text)} at {address}: {listing}", HTTPStatus.NOT_FOUND)


def names_and_ids(service: Service, beginning: str) -> list[tuple[str, str]]:
    """Return names and ids for shell completion, with descriptions.

    The id of a query is offered if the query has no name that can be written without quotes, or if the user has typed
    the beginning of the id.
    """
    found: dict[str, str] = {}
    for query in all_queries(service):
        state = one_line(query.status.state)
        writable = query.name is not None and query.name.replace("-", "").replace(".", "").isidentifier()
        if writable and str(query.name).startswith(beginning):
            found.setdefault(str(query.name), f"{state}, {query.short_id}")
        elif one_line(query.id) == query.id and query.id.startswith(beginning) and (beginning or not writable):
            found.setdefault(query.id, f"{state}, {one_line(query.name or 'without a name')}")
    return list(found.items())


def _said(text: str) -> str:
    return repr(one_line(text, 100))


def _listed(queries: Sequence[Query]) -> str:
    names = ", ".join(f"{query.called} {one_line(query.status.state)}" for query in queries[:SHOWN])
    return names + (f" and {len(queries) - SHOWN} more" if len(queries) > SHOWN else "")
