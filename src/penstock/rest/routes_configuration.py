"""``/api/v1/queries/{id}/configuration``: all options of a query, and when a change of each takes effect."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from functools import partial

from fastapi import APIRouter, Response
from pydantic import BaseModel

from penstock.config import Options, alignment, option_texts
from penstock.rest.answers import KeptAnswer
from penstock.rest.models import QuerySpec
from penstock.rest.problems import responses
from penstock.rest.resources import find_query, spec_of
from penstock.rest.routes_queries import QueryId

router = APIRouter(prefix="/api/v1/queries/{query_id}", tags=["queries"])


class Changes(StrEnum):
    """Time at which another value of an option takes effect.

    ``now``: by a change of the spec; ``next_start``: at the next start of the query in its program; ``never``: not at
    this checkpoint location.
    """

    NOW = "now"
    NEXT_START = "next_start"
    NEVER = "never"


class OptionResource(BaseModel):
    """One option. ``name``: the part after ``spark.penstock.``.

    Values are texts as in an option, or null if there is none. ``value``: the current value. ``at_start``: the value at
    the start of the query; only options that can change while it runs (``now``) may have another value since.
    ``is_default``: True if ``value`` equals ``default``.
    """

    name: str
    value: str | None
    at_start: str | None
    default: str | None
    is_default: bool
    changes: Changes


class ConfigurationResource(BaseModel):
    """Options by name.

    Options of sources, sinks, stores and the service are not included, because they may hold secrets.
    """

    options: list[OptionResource]


_ELSEWHERE = {
    "parallelism": Changes.NOW,
    "checkpoint.interval": Changes.NOW,
    "checkpoint.alignment": Changes.NOW,
    "maxParallelism": Changes.NEVER,
}
"""Options whose changes do not take effect at the next start."""
_DEFAULTS = option_texts(Options())


@router.get("/configuration", response_model=ConfigurationResource, responses=responses(404))
async def show_configuration(query_id: QueryId) -> Response:
    """Return the options of the query: current values, values at its start, and defaults."""
    configured = options, spec = _configured(query_id)
    return KeptAnswer(_resource(options, spec).model_dump_json(), configured, partial(_configured, query_id))


def _configured(query_id: str) -> tuple[Options, QuerySpec]:
    facts = find_query(query_id)
    return facts.options, spec_of(facts)


def _resource(options: Options, spec: QuerySpec) -> ConfigurationResource:
    checkpoint = spec.checkpoint
    now = replace(
        options,
        parallelism=spec.parallelism,
        checkpoint_interval_ms=checkpoint.interval_ms,
        checkpoint_alignment=alignment("checkpoint.alignment", checkpoint.alignment),
    )
    at_start = option_texts(options)
    resources = [
        OptionResource(
            name=name,
            value=value,
            at_start=at_start[name],
            default=_DEFAULTS[name],
            is_default=value == _DEFAULTS[name],
            changes=_ELSEWHERE.get(name, Changes.NEXT_START),
        )
        for name, value in option_texts(now).items()
    ]
    return ConfigurationResource(options=resources)
