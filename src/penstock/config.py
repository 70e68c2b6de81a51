"""Options, parsed once into frozen dataclasses. Names are the part behind ``spark.penstock.``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields

from penstock.errors import ConfigError
from penstock.protocol.elements import Alignment

CONF_PREFIX = "spark.penstock."

_DURATION = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*(ms|s|m|min|h)?\s*$")
_DURATION_MS = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, None: 1}
_SIZE = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*([kmg]i?b?|b)?\s*$")
_SIZE_BYTES = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "b": 1}


def duration_ms(name: str, text: str) -> int:
    """``"10s"``, ``"200ms"``, ``"5 min"`` or a bare number of milliseconds."""
    match = _DURATION.match(text.lower())
    if match is None:
        raise ConfigError(f"option {name}={text!r} is not a duration; write for example 200ms, 10s or 5m")
    return int(float(match[1]) * _DURATION_MS[match[2]])


def size_bytes(name: str, text: str) -> int:
    """``"32k"``, ``"8m"``, ``"1g"`` or a bare number of bytes."""
    match = _SIZE.match(text.lower())
    if match is None:
        raise ConfigError(f"option {name}={text!r} is not a size; write for example 32k, 8m or 1g")
    return int(float(match[1]) * _SIZE_BYTES[(match[2] or "b")[0]])


def whole_number(name: str, text: str) -> int:
    """A positive whole number."""
    if not text.strip().isdigit() or int(text) < 1:
        raise ConfigError(f"option {name}={text!r} is not a positive whole number")
    return int(text)


def alignment(name: str, text: str) -> Alignment:
    try:
        return Alignment(text.strip().lower())
    except ValueError:
        raise ConfigError(f"option {name}={text!r}: choose aligned or unaligned") from None


def boolean(name: str, text: str) -> bool:
    value = text.strip().lower()
    if value not in ("true", "false"):
        raise ConfigError(f"option {name}={text!r}: choose true or false")
    return value == "true"


@dataclass(frozen=True)
class Options:
    """All options of a query. Sizes in bytes, times in milliseconds."""

    parallelism: int | None = None
    max_parallelism: int = 128
    checkpoint_interval_ms: int = 10_000
    checkpoint_alignment: Alignment = Alignment.UNALIGNED
    checkpoint_timeout_ms: int = 600_000
    checkpoint_min_pause_ms: int = 0
    snapshots_retained: int = 3
    allow_older_snapshot: bool = False
    memory_per_gate: int = 32 << 20
    exclusive_window: int = 1 << 20
    flush_interval_ms: int = 20
    restart_attempts: int = 10
    restart_delay_ms: int = 100
    restart_max_delay_ms: int = 10_000
    slot_host: str = "127.0.0.1"


_PARSERS = {
    "parallelism": ("parallelism", whole_number),
    "maxParallelism": ("max_parallelism", whole_number),
    "checkpoint.interval": ("checkpoint_interval_ms", duration_ms),
    "checkpoint.alignment": ("checkpoint_alignment", alignment),
    "checkpoint.timeout": ("checkpoint_timeout_ms", duration_ms),
    "checkpoint.minPause": ("checkpoint_min_pause_ms", duration_ms),
    "snapshots.retained": ("snapshots_retained", whole_number),
    "snapshots.allowOlder": ("allow_older_snapshot", boolean),
    "exchange.memoryPerGate": ("memory_per_gate", size_bytes),
    "exchange.exclusiveWindow": ("exclusive_window", size_bytes),
    "exchange.flushInterval": ("flush_interval_ms", duration_ms),
    "restart.attempts": ("restart_attempts", whole_number),
    "restart.delay": ("restart_delay_ms", duration_ms),
    "restart.maxDelay": ("restart_max_delay_ms", duration_ms),
}

OPTION_NAMES = tuple(sorted(_PARSERS))


def parse_options(texts: Mapping[str, str]) -> Options:
    """Parse option texts by their names without prefix; names are case-insensitive, as Spark's are.

    Raises:
        ConfigError: an unknown name (the nearest known ones are listed) or a bad value.
    """
    by_lower = {name.lower(): name for name in _PARSERS}
    values: dict[str, object] = {}
    for name, text in texts.items():
        known = by_lower.get(name.lower())
        if known is None:
            raise ConfigError(f"unknown option {CONF_PREFIX}{name}; known: {', '.join(OPTION_NAMES)}")
        field_name, parse = _PARSERS[known]
        values[field_name] = parse(f"{CONF_PREFIX}{known}", str(text))
    assert set(values) <= {f.name for f in fields(Options)}
    return Options(**values)  # type: ignore[arg-type]
