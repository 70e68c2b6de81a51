"""JSON models of changes to a query, and of the operations that carry them out."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic.json_schema import SkipJsonSchema

from penstock.config import LEAST_INTERVAL_MS
from penstock.queries.operations import OperationState, Verb
from penstock.rest.check_models import DiffResource, VerificationResource
from penstock.rest.models import FromAttributes, Redacted

MAX_INTERVAL_MS = 7 * 24 * 3_600_000


def number(value: Any) -> Any:
    """Accept only JSON numbers: not the text ``"3"``, not ``true``."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("must be a whole number")
    return value


def no_default(schema: dict[str, Any]) -> None:
    """Remove the default from a JSON schema: a member that is left out stays unchanged."""
    for member in schema["properties"].values():
        member.pop("default", None)


class Given(BaseModel):
    """Base of request bodies in which members may be left out. ``null`` and unknown members are refused."""

    model_config = ConfigDict(extra="forbid", json_schema_extra=no_default)

    @model_validator(mode="before")
    @classmethod
    def _no_nulls(cls, value: Any) -> Any:
        if isinstance(value, dict) and None in value.values():
            raise ValueError("null is no value of any member: leave it out")
        return value


class Patch(Given):
    """A JSON merge patch (RFC 7386): what is left out stays. Nothing can be removed, so there is no ``null``."""


class CheckpointPatch(Patch):
    interval_ms: (
        Annotated[int, Field(ge=LEAST_INTERVAL_MS, le=MAX_INTERVAL_MS), BeforeValidator(number)] | SkipJsonSchema[None]
    ) = None
    alignment: Literal["auto", "aligned", "unaligned"] | SkipJsonSchema[None] = None


class SpecPatch(Patch):
    state: Literal["running", "suspended", "stopped"] | SkipJsonSchema[None] = None
    parallelism: Annotated[int, Field(ge=1, le=1 << 15), BeforeValidator(number)] | SkipJsonSchema[None] = None
    checkpoint: CheckpointPatch | SkipJsonSchema[None] = None


class ResumePatch(Patch):
    """Snapshot to which a suspended query returns, by id or label, and the handling of the output written since."""

    snapshot: Annotated[str, Field(min_length=1, max_length=200)]
    output: Literal["retract", "keep"] | SkipJsonSchema[None] = None


class QueryPatch(Patch):
    """``resume_from`` goes with ``state`` ``running`` of a suspended query, or of one that was resumed so."""

    spec: SpecPatch | SkipJsonSchema[None] = None
    resume_from: ResumePatch | SkipJsonSchema[None] = None


class OperationProgress(BaseModel):
    """Progress of an operation. ``message``: the current step.

    ``done`` of ``total`` counts, by operation: rescale and resume: running slots; suspend and stop: released slots;
    taking a snapshot: slots that acknowledged it; export: written rows; verification: bytes; comparison: thousandths of
    each table; deletion, copy, fork and collection: 0 of 1.
    """

    message: Redacted
    done: int
    total: int


class OperationError(BaseModel):
    kind: str
    text: Redacted


class OperationResource(FromAttributes):
    """Long-running operation on a query.

    ``parallelism``: target of a rescale. ``snapshot``: the snapshot that was taken, deleted, exported, forked, copied
    or verified; null if there were several. ``freed_files``, ``freed_bytes``: files that were removed. ``location``:
    target of an export, fork or copy. ``verification``, ``diff``: results. ``progress``: null after the end.
    """

    id: str
    query_id: str
    run_id: str
    verb: Verb
    parallelism: int | None
    state: OperationState
    began_at_ms: int = Field(validation_alias="began_ms")
    ended_at_ms: int | None = Field(validation_alias="ended_ms")
    snapshot: str | None = None
    freed_files: int | None = None
    freed_bytes: int | None = None
    location: str | None = None
    verification: VerificationResource | None = None
    diff: DiffResource | None = None
    progress: OperationProgress | None = None
    error: OperationError | None = None
