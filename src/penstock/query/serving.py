"""The REST service that a session or query asks for by its options: ``rest.enabled`` and what goes with it.

The service is a layer above this one, and is lent from there (``penstock/__init__.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from penstock.config import CONF_PREFIX, boolean, natural, shown
from penstock.errors import ConfigError

PREFIX = "rest."
"""Of the options that say it, behind ``spark.penstock.``."""


def _text(name: str, text: str) -> str:
    return text


def _port(name: str, text: str) -> int:
    port = natural(text)
    if port is None or port > 65535:
        raise ConfigError(f"option {name}={shown(text)}: write a port from 1 to 65535, or 0 for any free one")
    return port


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


class Service:
    """``serve``: ``penstock.serve``, which takes what ``parse_service`` gives; None until somebody lends it."""

    serve: Callable[..., object] | None = None


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
            raise ConfigError(f"unknown option {CONF_PREFIX}{name}; known: {', '.join(REST_OPTIONS)}")
        argument, parse = _PARSERS[known]
        arguments[argument] = parse(f"{CONF_PREFIX}{known}", text)
    return arguments if arguments.pop("enabled", False) else None


def serve(arguments: Mapping[str, Any] | None) -> None:
    """Begin to serve, if that is asked for; where the same is served already, nothing happens. It goes on until the
    program ends or stops it: it is the driver's, not the query's.

    Raises:
        ConfigError, ResourceError: as ``penstock.serve``.
    """
    if arguments is None:
        return
    if SERVICE.serve is None:
        raise ConfigError("spark.penstock.rest.enabled: start the query through penstock.writeStream, which can serve")
    SERVICE.serve(**arguments)
