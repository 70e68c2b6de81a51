"""The REST service that a session or query asks for by its options: ``rest.enabled`` and what goes with it.

The service is a layer above this one, and is lent from there (``penstock/__init__.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

from penstock.config import CONF_PREFIX, boolean, ports, unknown_option
from penstock.errors import ConfigError

PREFIX = "rest."
"""Of the options that say it, behind ``spark.penstock.``."""
PORT_RETRIES_CONF = "spark.port.maxRetries"
"""Setting that Spark has for its UI."""


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


class Reservation(Protocol):
    """A service that has its port."""

    def begin(self) -> object:
        """Start to serve."""

    def release(self) -> None:
        """Give the port back, unless the service has started."""


class Service:
    """``reserve``: takes the result of ``parse_service`` and ``retries``. None until the REST layer sets it."""

    reserve: Callable[..., Reservation] | None = None


SERVICE = Service()


def is_rest_option(name: str) -> bool:
    """``name``: without ``spark.penstock.``."""
    return name.lower().startswith(PREFIX)


def parse_service(texts: Mapping[str, str]) -> dict[str, Any] | None:
    """The arguments of ``serve``, from options without prefix, among others; None if ``rest.enabled`` is not true.

    Raises:
        ConfigError: an unknown name or a bad value. What it does not name may be a secret.
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
def reserved(arguments: Mapping[str, Any] | None, retries: str | None) -> Iterator[Callable[[], object]]:
    """Reserve a port for the service while a query starts, if the options request a service.

    Yields:
        A function that starts the service. It does nothing if the same service runs already. The service belongs to the
        driver, not to the query: it runs until the program ends or stops it. Without a call the port is given back.

    Args:
        retries: the session's setting ``PORT_RETRIES_CONF``: number of next ports to try if the port is in use.

    Raises:
        ConfigError, ResourceError: as ``penstock.serve``.
    """
    if arguments is None:
        yield lambda: None
        return
    if SERVICE.reserve is None:
        raise ConfigError("spark.penstock.rest.enabled: start the query through penstock.writeStream, which can serve")
    if retries is not None and not retries.isdigit():
        raise ConfigError(f"{PORT_RETRIES_CONF}={retries!r}: write how many ports may be tried, for example 16")
    tried = {} if retries is None else {"retries": int(retries)}
    reservation = SERVICE.reserve(**arguments, **tried)
    try:
        yield reservation.begin
    finally:
        reservation.release()
