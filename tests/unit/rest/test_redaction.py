"""Texts of user code, servers and files have no secret in any REST resource."""

from __future__ import annotations

import logging
import typing

import pytest
from pydantic import BaseModel

from penstock.coordinator.history_writer import without_secrets as of_history
from penstock.redaction import without_secrets
from penstock.rest import change_models, models
from penstock.rest.models import FailureResource, Redacted
from penstock.worker.log_relay import MOST_TEXT, LogRelay

TOLD = "cannot log in: kafka.ssl.key.passphrase=hunter2"


def test_a_failure_has_no_secret() -> None:
    assert FailureResource(kind="SinkError", text=TOLD).text == "cannot log in: kafka.ssl.key.passphrase=***"
    assert of_history is without_secrets


@pytest.mark.parametrize("module", [models, change_models])
def test_every_text_of_an_error_is_redacted(module: object) -> None:
    found = 0
    for kind in vars(module).values():
        # The text of a vertex is the plan's own and quotes no error.
        if isinstance(kind, type) and issubclass(kind, BaseModel) and kind is not models.OperatorResource:
            hints = typing.get_type_hints(kind, include_extras=True)
            for name in {"text", "cause", "reason", "message"} & set(hints):
                assert hints[name] == Redacted, f"{kind.__name__}.{name}"
                found += 1
    assert found >= 2


def test_a_secret_is_removed_before_a_line_is_cut() -> None:
    """The kept end of a traceback may begin inside a secret, without the name of the secret."""
    relay = LogRelay()
    secret = "s" * 100
    try:
        raise ValueError(f"password={secret} " + "y" * (MOST_TEXT - 50))
    except ValueError as error:
        exc_info = (type(error), error, error.__traceback__)
    relay.emit(logging.LogRecord("penstock", logging.ERROR, "", 0, f"password={secret}", None, exc_info))
    logged = relay.take(0)
    assert logged is not None
    assert "sss" not in logged.lines[0].exception + logged.lines[0].message
    assert len(logged.lines[0].exception) <= MOST_TEXT
