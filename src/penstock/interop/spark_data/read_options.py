"""Options of ``spark.read.format("penstock")``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.config import size_bytes, unknown_option
from penstock.errors import ConfigError

SNAPSHOTS, TABLES, STATE, INFLIGHT = "snapshots", "tables", "state", "inflight"
OFFSETS, WATERMARKS, SCALARS, TIMERS = "offsets", "watermarks", "scalars", "timers"
VIEWS = (SNAPSHOTS, TABLES, OFFSETS, WATERMARKS, SCALARS, TIMERS)
"""Values of the option ``view``. State and in-flight data have options of their own."""
PARTITION_BYTES = 32 << 20
"""Stored bytes per task: about four sections, which are a few times as large when decoded."""
_NAMES = (
    *("location", "path", "snapshot", "state", "inflight", "view", "columns", "keys", "bookkeeping", "partitionBytes"),
)


@dataclass(frozen=True)
class ReadOptions:
    """Options of a read.

    Attributes:
        snapshot: an id or a label; empty: the newest of the lineage.
        view: one of ``VIEWS``, or ``STATE`` or ``INFLIGHT``.
        name: name of the state table or of the exchange.
        columns: names of the columns to read; empty: all.
        keys: keys of a state table whose rows are read, see ``parse_key_filter``; empty: all.
        bookkeeping: read the engine's own columns, too.
        partition_bytes: see ``PARTITION_BYTES``.
    """

    location: str
    snapshot: str
    view: str
    name: str = ""
    columns: tuple[str, ...] = ()
    keys: str = ""
    bookkeeping: bool = False
    partition_bytes: int = PARTITION_BYTES


def parse_read_options(options: Mapping[str, str]) -> ReadOptions:
    """Parse the options. Raise ConfigError if one is unknown, missing, or cannot be combined with another."""
    known = {name.lower(): name for name in _NAMES}
    given = {name.lower(): value for name, value in options.items()}
    for name in given:
        if name not in known:
            raise unknown_option(name, 'format("penstock")', _NAMES)
    location = given.get("location") or given.get("path")
    if not location:
        raise ConfigError('format("penstock") needs the option location: the checkpointLocation of a query')
    view, name = _view(given)
    if given.get("keys") and view != STATE:
        raise ConfigError("option keys can be used with option state only")
    return ReadOptions(
        location,
        given.get("snapshot", ""),
        view,
        name,
        _columns(given.get("columns", "")),
        given.get("keys", ""),
        _flag("bookkeeping", given.get("bookkeeping", "false")),
        size_bytes("partitionBytes", given.get("partitionbytes", str(PARTITION_BYTES))),
    )


def _view(given: Mapping[str, str]) -> tuple[str, str]:
    selected = [name for name in (STATE, INFLIGHT, "view") if given.get(name)]
    if len(selected) > 1:
        raise ConfigError(f"options {' and '.join(selected)} do not go together; give one of them")
    if not selected:
        return (TABLES if given.get("snapshot") else SNAPSHOTS), ""
    value = given[selected[0]]
    if selected[0] != "view":
        return selected[0], value
    if value.lower() not in VIEWS:
        raise ConfigError(f"option view={value!r}: choose {', '.join(VIEWS)}; or give the option state or inflight")
    if value.lower() == SNAPSHOTS and given.get("snapshot"):
        raise ConfigError(f"option view={value} lists all snapshots; leave the option snapshot out")
    return value.lower(), ""


def _columns(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",")) if text.strip() else ()


def _flag(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ConfigError(f"option {name}={text!r}: choose true or false")
    return text.lower() == "true"
