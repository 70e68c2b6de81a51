"""Options of a session or query that request the REST service: ``rest.enabled`` and its settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from penstock.config import CONF_PREFIX, boolean, ports, unknown_option
from penstock.errors import ConfigError

PREFIX = "rest."
"""Prefix of these options, after ``spark.penstock.``."""
PORT_RETRIES_CONF = "spark.port.maxRetries"
"""Spark's setting for its UI: how many ports to try."""


def _text(name: str, text: str) -> str:
    return text


def _port(name: str, text: str) -> int | range:
    """Parse ``4040``, which is the first port to try, ``4040-4050`` or 0."""
    given = ports(name, text.strip())
    return given if "-" in text else given[0]


_PARSERS: Mapping[str, tuple[str, Callable[[str, str], object]]] = {
    "rest.enabled": ("enabled", boolean),
    "rest.host": ("host", _text),
    "rest.port": ("port", _port),
    "rest.token": ("token", _text),
    "rest.tls.certificate": ("certificate", _text),
    "rest.tls.key": ("key", _text),
    "rest.exportRoot": ("export_root", _text),
}
REST_OPTIONS = tuple(sorted(_PARSERS))


def is_rest_option(name: str) -> bool:
    """Return True for an option of the REST service. ``name`` is without the prefix ``spark.penstock.``."""
    return name.lower().startswith(PREFIX)


def parse_rest_options(texts: Mapping[str, str]) -> dict[str, Any] | None:
    """Return the arguments of ``penstock.serve``, or None if ``rest.enabled`` is not true.

    Args:
        texts: options without prefix. Options that do not belong to the REST service are ignored.

    Raises:
        ConfigError: an unknown name or a bad value. For an unknown name the message omits the value, which may be a
            secret.
    """
    by_lower = {name.lower(): name for name in _PARSERS}
    arguments: dict[str, Any] = {}
    for name, text in texts.items():
        if not is_rest_option(name):
            continue
        known = by_lower.get(name.lower())
        if known is None:
            raise unknown_option(f"{CONF_PREFIX}{name}", "the REST service", REST_OPTIONS)
        argument, parse = _PARSERS[known]
        arguments[argument] = parse(f"{CONF_PREFIX}{known}", text)
    return arguments if arguments.pop("enabled", False) else None


@contextmanager
def reserved_service(arguments: Mapping[str, Any] | None, retries: str | None) -> Iterator[Callable[[], object]]:
    """Reserve a port for the REST service while a query starts, if the options request a service.

    Args:
        arguments: result of ``parse_rest_options``.
        retries: the session's setting ``PORT_RETRIES_CONF``: number of next ports to try if the port is in use.

    Yields:
        A function that starts the service. It does nothing if the same service already runs. The service belongs to the
        driver, not to the query: it runs until the program ends or stops it. If the function is not called, the port is
        released.

    Raises:
        ConfigError, ResourceError: as ``penstock.serve``.
    """
    if arguments is None:
        yield lambda: None
        return
    if retries is not None and not retries.isdigit():
        raise ConfigError(f"{PORT_RETRIES_CONF}={retries!r}: write how many ports may be tried, for example 16")
    from penstock.rest.server import reserve  # loads FastAPI, which most queries do not need

    tried: dict[str, Any] = {} if retries is None else {"retries": int(retries)}
    reservation = reserve(**arguments, **tried)
    try:
        yield reservation.begin
    finally:
        reservation.release()
