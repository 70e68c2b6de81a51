"""Calls ``penstock query`` and ``penstock snapshot`` as a user does."""

from __future__ import annotations

from typer.testing import CliRunner

from penstock.cli.main import app


def query(*words: str, **environment: str | None) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of ``penstock query <words>``."""
    return _called("query", *words, **environment)


def snapshot(*words: str, **environment: str | None) -> tuple[int, str, str]:
    """Likewise, of ``penstock snapshot <words>``."""
    return _called("snapshot", *words, **environment)


def _called(*words: str, **environment: str | None) -> tuple[int, str, str]:
    said = {"PENSTOCK_URL": None, "PENSTOCK_TOKEN": None, "COLUMNS": "80", **environment}
    result = CliRunner().invoke(app, words, env=said, prog_name="penstock")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def assert_one_line(called: tuple[int, str, str], *texts: str, code: int = 1) -> None:
    """Refused with this code: nothing on stdout, one line on stderr that has all of these."""
    ended, out, err = called
    assert (ended, out) == (code, ""), called
    assert err.startswith("penstock: ")
    assert err.count("\n") == 1, err
    for text in texts:
        assert text in err, err
