"""``/api/v1/queries/{id}/logs``: Penstock's log lines about a query, from its driver and slots."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel

from penstock.model.manifest import LARGEST
from penstock.queries.query_logs import LEVELS, QUERY_LOGS, LogLine
from penstock.rest.answers import KeptAnswer
from penstock.rest.problems import responses
from penstock.rest.resources import find_query
from penstock.rest.routes_queries import MAX_PAGE, PAGE, QueryId
from penstock.snapshots.store.store_access import StoreAccess

router = APIRouter(prefix="/api/v1/queries/{query_id}", tags=["logs"])


class LogRecord(BaseModel):
    """One log line. ``number`` rises with every line.

    ``generation``: null for lines without one. ``slot``: null for lines of the driver. ``exception``: the end of the
    traceback of an exception.
    """

    number: int
    at_ms: int
    level: str
    logger: str
    generation: int | None
    slot: int | None
    message: str
    exception: str | None


class LogPage(BaseModel):
    """Newest first. ``next``: the ``before`` of the next page; null behind the oldest that is remembered."""

    records: list[LogRecord]
    next: int | None


@router.get("/logs", response_model=LogPage, responses=responses(404))
async def list_logs(
    query_id: QueryId,
    level: Annotated[Literal["debug", "info", "warning", "error"], Query(description="This one and above.")] = "debug",
    before: Annotated[int | None, Query(ge=1, le=LARGEST, description="Older than the line of this number.")] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = PAGE,
) -> Response:
    """Return the newest log lines about this query.

    The driver keeps the last 1,000 lines of its own and of the slots, which send theirs twice per second.
    """
    facts = access, _ = _logged(query_id)
    lines, more = QUERY_LOGS.page(query_id, LEVELS[level], before, limit)
    records = [_record(one, access) for one in lines]
    page = LogPage(records=records, next=lines[-1].number if more else None)
    return KeptAnswer(page.model_dump_json(), facts, partial(_logged, query_id))


def _logged(query_id: str) -> tuple[StoreAccess | None, int]:
    """Return the store access that redacts secrets, and the number of the newest line."""
    return find_query(query_id).access, QUERY_LOGS.newest(query_id)


def _record(line: LogLine, access: StoreAccess | None) -> LogRecord:
    message, exception = line.message, line.exception
    if access is not None:
        message, exception = access.without_secrets(message), access.without_secrets(exception)
    return LogRecord(
        number=line.number,
        at_ms=line.at_ms,
        level=line.level_name,
        logger=line.logger,
        generation=line.generation,
        slot=line.slot,
        message=message,
        exception=exception or None,
    )
