"""Errors as RFC 9457 problem documents. All errors have this form, and none contains a traceback."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import AfterValidator, BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.routing import compile_path

from penstock.errors import (
    CheckpointFailed,
    ConfigError,
    CorruptSnapshot,
    LocationError,
    NotSupported,
    PenstockError,
    QueryFailed,
    ResourceError,
    name_of,
)
from penstock.logs import get_logger
from penstock.redaction import without_secrets

log = get_logger(__name__)

MEDIA_TYPE = "application/problem+json"
MAX_DETAIL = 2000
"""Most characters of an error's text. ``/exceptions`` returns the errors of a query in full."""
STATUS_OF = (
    (ConfigError, 422),
    (NotSupported, 422),
    (CorruptSnapshot, 500),
    (LocationError, 404),
    (ResourceError, 409),
    (CheckpointFailed, 409),
    (QueryFailed, 409),
)
"""HTTP status by class of error. The first matching class counts."""


class InvalidValue(BaseModel):
    """One value of a request that cannot be."""

    where: str
    why: Annotated[str, AfterValidator(without_secrets)]


class Problem(BaseModel):
    """Problem document of RFC 9457.

    ``type`` is ``about:blank``: the status tells the kind of problem. ``detail`` names the thing and the way out.
    ``error``: Penstock's exception class, if there is one.
    """

    type: str = "about:blank"
    title: str
    status: int = Field(ge=400, le=599)
    detail: str
    instance: str = ""
    error: str | None = None
    invalid: list[InvalidValue] | None = None


class ProblemError(Exception):
    """Refusal of a request. Its status and detail become the problem document."""

    def __init__(self, status: int, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(status, detail)
        self.status = status
        self.detail = detail
        self.headers = dict(headers or {})


def responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI descriptions of these problem statuses, and of those that every request may get."""
    always = {400, 401, 405, 406, 413, 421, 422, 500}
    return {
        status: {
            "description": HTTPStatus(status).phrase,
            "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
        }
        for status in sorted(always | set(statuses))
    }


def problem(
    status: int,
    detail: str,
    *,
    instance: str = "",
    error: str | None = None,
    invalid: list[InvalidValue] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Return a response with a problem document. Secrets in ``detail`` are redacted, and long texts are cut."""
    body = Problem(
        title=HTTPStatus(status).phrase,
        status=status,
        detail=without_secrets(detail)[:MAX_DETAIL],
        instance=instance,
        error=error,
        invalid=invalid,
    )
    content = body.model_dump(exclude_none=True)
    return JSONResponse(content, status, headers=dict(headers or {}), media_type=MEDIA_TYPE)


def answer_problems(app: FastAPI) -> None:
    """Turn every exception of a request into a problem document."""
    app.add_exception_handler(ProblemError, _refused)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(PenstockError, _penstock)
    app.add_exception_handler(Exception, _unforeseen)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, ProblemError)
    return problem(error.status, error.detail, instance=request.url.path, headers=error.headers)


async def _http(request: Request, error: Exception) -> Response:
    """Describe a refusal by the framework, such as an unknown path or method."""
    assert isinstance(error, HTTPException)
    path = request.url.path
    texts = {
        404: f"there is nothing at {path}; /openapi.json lists everything there is",
        405: f"{request.method} is not for {path}; /openapi.json says which methods are",
        400: "the body is not JSON in UTF-8",
    }
    detail = texts.get(error.status_code, str(error.detail))
    headers = {"allow": _methods_of(request)} if error.status_code == 405 else error.headers
    return problem(error.status_code, detail, instance=path, headers=headers)


def _methods_of(request: Request) -> str:
    """Return the methods of all routes that match this path best. The framework reports only the first route's."""
    paths: Mapping[str, Mapping[str, object]] = request.app.openapi()["paths"]
    fitting = [path for path in paths if compile_path(path)[0].match(request.url.path)]
    fewest = min((path.count("{") for path in fitting), default=0)
    best = [paths[path] for path in fitting if path.count("{") == fewest]
    return ", ".join(sorted({method.upper() for methods in best for method in methods}))


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    found = error.errors()
    if any(one["type"] == "json_invalid" for one in found):
        return problem(400, "the body is not JSON in UTF-8", instance=request.url.path)
    invalid = [
        InvalidValue(where=_where(one["loc"]), why=str(one["msg"])) for one in found if one["type"] != "none_required"
    ]
    said = "; ".join(f"{one.where}: {one.why}" for one in invalid)
    return problem(422, f"the request does not fit: {said}", instance=request.url.path, invalid=invalid)


def _where(parts: Sequence[int | str]) -> str:
    """Return the path of an invalid member, without the parts that name validators."""
    names = [str(part) for part in parts]
    return ".".join(name for name in names if name.isdigit() or (name[:1].islower() and "[" not in name))


async def _penstock(request: Request, error: Exception) -> Response:
    status = next((status for kind, status in STATUS_OF if isinstance(error, kind)), 500)
    text = str(error).partition("\n")[0]  # the other lines are a traceback of user code
    return problem(status, text, instance=request.url.path, error=name_of(error))


async def _unforeseen(request: Request, error: Exception) -> Response:
    log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    text = "the service failed to answer; the driver's log says why, and the query is not touched by it"
    return problem(500, text, instance=request.url.path)
