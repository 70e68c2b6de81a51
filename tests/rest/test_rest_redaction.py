"""No text that user code, a server or a file has a part in tells a secret over REST, whatever resource it is in."""

from __future__ import annotations

import logging
import typing

import pytest
from pydantic import BaseModel

from penstock.redaction import without_secrets
from penstock.rest import change_models, models
from penstock.rest.models import FailureResource, Redacted
from penstock.runtime.history_writer import without_secrets as of_history
from penstock.runtime.log_relay import MOST_TEXT, LogRelay

TOLD = "cannot log in: kafka.ssl.key.passphrase=hunter2"


def test_a_failure_has_no_secret() -> None:
    assert FailureResource(kind="SinkError", text=TOLD).text == "cannot log in: kafka.ssl.key.passphrase=***"
    assert of_history is without_secrets


@pytest.mark.parametrize("module", [models, change_models])
def test_every_text_of_an_error_is_redacted(module: object) -> None:
    found = 0
    for kind in vars(module).values():
        # A vertex's text is the plan's own: no error has a part in it.
        if isinstance(kind, type) and issubclass(kind, BaseModel) and kind is not models.OperatorResource:
            hints = typing.get_type_hints(kind, include_extras=True)
            for name in {"text", "cause", "reason", "message"} & set(hints):
                assert hints[name] == Redacted, f"{kind.__name__}.{name}"
                found += 1
    assert found >= 2


def test_a_secret_is_removed_before_a_line_is_cut() -> None:
    """The end of a traceback may begin amid a secret, where nothing tells of it any more."""
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
