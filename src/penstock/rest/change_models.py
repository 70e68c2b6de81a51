"""What a query is asked to become, and what becomes of that."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic.json_schema import SkipJsonSchema

from penstock.query.steering import OperationState, Verb
from penstock.rest.models import Shown

MAX_INTERVAL_MS = 7 * 24 * 3_600_000


def _number(value: Any) -> Any:
    """JSON's numbers alone: not the text ``"3"``, not ``true``."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("must be a whole number")
    return value


def _no_default(schema: dict[str, Any]) -> None:
    """What is left out stays as it is: there is no default to be told of."""
    for member in schema["properties"].values():
        member.pop("default", None)


class Patch(BaseModel):
    """A JSON merge patch (RFC 7386): what is left out stays. Nothing can be removed, so ``null`` is refused."""

    model_config = ConfigDict(extra="forbid", json_schema_extra=_no_default)

    @model_validator(mode="before")
    @classmethod
    def _no_nulls(cls, value: Any) -> Any:
        if isinstance(value, dict) and None in value.values():
            raise ValueError("null would remove a member, and none of them can be")
        return value


class CheckpointPatch(Patch):
    interval_ms: Annotated[int, Field(ge=1, le=MAX_INTERVAL_MS), BeforeValidator(_number)] | SkipJsonSchema[None] = None
    alignment: Literal["auto", "aligned", "unaligned"] | SkipJsonSchema[None] = None


class SpecPatch(Patch):
    state: Literal["running", "stopped"] | SkipJsonSchema[None] = None
    parallelism: Annotated[int, Field(ge=1, le=1 << 15), BeforeValidator(_number)] | SkipJsonSchema[None] = None
    checkpoint: CheckpointPatch | SkipJsonSchema[None] = None


class QueryPatch(Patch):
    spec: SpecPatch | SkipJsonSchema[None] = None


class OperationProgress(BaseModel):
    """``message``: what it is at. ``done`` of ``total``: slots that run, of those there are to be."""

    message: str
    done: int
    total: int


class OperationError(BaseModel):
    kind: str
    text: str


class OperationResource(Shown):
    """Work that takes its time. ``parallelism``: what the query is rescaled to. ``progress``: null once it has
    ended."""

    id: str
    query_id: str
    run_id: str
    verb: Verb
    parallelism: int | None
    state: OperationState
    began_at_ms: int = Field(validation_alias="began_ms")
    ended_at_ms: int | None = Field(validation_alias="ended_ms")
    progress: OperationProgress | None = None
    error: OperationError | None = None
