"""Texts of errors have no secret in any resource of the service."""

from __future__ import annotations

import importlib
import pkgutil

from pydantic import AfterValidator, BaseModel
from pydantic.fields import FieldInfo

import penstock.rest
from penstock.redaction import without_secrets
from penstock.rest.problems import MAX_DETAIL, InvalidValue, problem

NAMES_OF_TEXTS = {"cause", "explanation", "message", "problem", "reason", "why"}
"""Names of fields that have the text of an error."""
REDACTED_ELSEWHERE = {
    ("LogRecord", "message"),  # when the line is remembered, see test_rest_logs
    ("BottleneckResource", "explanation"),  # made of numbers and names of operators
}


def models() -> list[type[BaseModel]]:
    for module in pkgutil.walk_packages(penstock.rest.__path__, "penstock.rest."):
        importlib.import_module(module.name)
    found: list[type[BaseModel]] = []
    above: list[type[BaseModel]] = [BaseModel]
    while above:
        below = [one for one in above.pop().__subclasses__() if one.__module__.startswith("penstock.rest")]
        found += below
        above += below
    return found


def is_redacted(field: FieldInfo) -> bool:
    return any(isinstance(one, AfterValidator) and one.func is without_secrets for one in field.metadata)


def test_every_text_of_an_error_is_redacted() -> None:
    texts = {
        (model.__name__, name): is_redacted(field)
        for model in models()
        for name, field in model.model_fields.items()
        if (name in NAMES_OF_TEXTS or (name == "text" and "kind" in model.model_fields)) and field.annotation is str
    }
    assert {where for where, redacted in texts.items() if not redacted} == REDACTED_ELSEWHERE
    assert {("FailureResource", "text"), ("OperationError", "text"), ("CheckpointSummary", "reason")} < set(texts)


def test_a_problem_is_redacted_before_it_is_cut() -> None:
    detail = "x" * (MAX_DETAIL - 20) + "https://me:hunter2hunter2@host"
    invalid = [InvalidValue(where="a", why="password=hunter2")]
    body = problem(422, detail, invalid=invalid).body
    assert b"hunt" not in bytes(body)
    assert b"https://me:***@host" in bytes(body)
