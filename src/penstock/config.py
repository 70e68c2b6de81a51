"""Options, parsed once into frozen dataclasses. Option names are given without the prefix ``spark.penstock.``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import Enum

from penstock.errors import ConfigError
from penstock.logs import LogFormat
from penstock.model.elements import Alignment

CONF_PREFIX = "spark.penstock."
MAX_CONCURRENT = 8
"""Most periodic checkpoints in flight. Each holds its captured data in memory until that data is durable."""
MAX_STATIC_BYTES = 1 << 30
"""Largest static side of one join. Its texts must fit into one Arrow array, and the driver holds several copies of them
while it passes them to Spark."""

OFF = "off"
UNLIMITED = "unlimited"

SHOWN_CHARACTERS = 200
"""Most characters of a wrong value that a message quotes."""
LARGEST = 2**63 - 1
"""Largest whole number: Spark reads them as a Java long."""
LONGEST_MS = 100 * 365 * 86_400_000
"""Longest duration: 100 years. The operating system's clock cannot represent much longer waits."""
LEAST_INTERVAL_MS = 10
"""Shortest checkpoint interval and timeout, as in Flink. With a shorter interval a query does little but checkpoints;
with a shorter timeout no checkpoint completes."""

_WHOLE = re.compile(r"\s*+([0-9]{1,19})\s*+\Z")
_DURATION = re.compile(r"\s*+([0-9]{1,18}(?:\.[0-9]{1,18})?)\s*+(ms|s|m|min|h)?\s*+\Z")
_DURATION_MS = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, None: 1}
_SIZE = re.compile(r"\s*+([0-9]{1,18}(?:\.[0-9]{1,18})?)\s*+([kmg]i?b?|b)?\s*+\Z")
_PORTS = re.compile(r"\s*+([0-9]{1,9})\s*+(?:-\s*+([0-9]{1,9})\s*+)?\Z")
_SIZE_BYTES = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "b": 1}


def shown(text: str) -> str:
    """Return a value in quotes for a message; a long value is cut."""
    return repr(text) if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]!r}... ({len(text)} characters)"


def natural(text: str) -> int | None:
    """Return the whole number from 0 to ``LARGEST`` in a text; None if the text is not such a number."""
    match = _WHOLE.match(text)
    return int(match[1]) if match and int(match[1]) <= LARGEST else None


def duration_ms(name: str, text: str) -> int:
    """Parse a duration such as ``"10s"``, ``"200ms"`` or ``"5 min"``; a bare number is in milliseconds."""
    match = _DURATION.match(text.lower())
    if match is None:
        raise ConfigError(f"option {name}={shown(text)} is not a duration; write for example 200ms, 10s or 5m")
    duration = int(float(match[1]) * _DURATION_MS[match[2]])
    if duration > LONGEST_MS:
        raise ConfigError(f"option {name}={shown(text)}: at most 100 years, which are 876000h")
    return duration


def positive_duration_ms(name: str, text: str) -> int:
    """Parse a duration of at least one millisecond."""
    duration = duration_ms(name, text)
    if duration < 1:
        raise ConfigError(f"option {name}={shown(text)}: must be 1ms or longer")
    return duration


def checkpoint_duration_ms(name: str, text: str) -> int:
    """Parse a checkpoint interval or timeout: a duration of at least ``LEAST_INTERVAL_MS``."""
    duration = duration_ms(name, text)
    if duration < LEAST_INTERVAL_MS:
        raise ConfigError(f"option {name}={shown(text)}: must be {LEAST_INTERVAL_MS}ms or longer")
    return duration


def duration_ms_or_off(name: str, text: str) -> int | None:
    """Parse a duration, or ``off`` (None)."""
    return None if text.strip().lower() == OFF else duration_ms(name, text)


DURATIONS = (duration_ms, positive_duration_ms, checkpoint_duration_ms, duration_ms_or_off)


def size_bytes(name: str, text: str) -> int:
    """Parse a size such as ``"32k"``, ``"8m"`` or ``"1g"``; a bare number is in bytes."""
    match = _SIZE.match(text.lower())
    if match is None:
        raise ConfigError(f"option {name}={shown(text)} is not a size; write for example 32k, 8m or 1g")
    size = int(float(match[1]) * _SIZE_BYTES[(match[2] or "b")[0]])
    if size > LARGEST:
        raise ConfigError(f"option {name}={shown(text)}: at most {LARGEST} bytes")
    return size


def positive_size_bytes(name: str, text: str) -> int:
    """Parse a size of at least one byte."""
    size = size_bytes(name, text)
    if size < 1:
        raise ConfigError(f"option {name}={shown(text)}: must be 1 byte or more")
    return size


def static_bytes(name: str, text: str) -> int:
    """Parse a size up to ``MAX_STATIC_BYTES``."""
    size = size_bytes(name, text)
    if size > MAX_STATIC_BYTES:
        raise ConfigError(
            f"option {name}={shown(text)}: at most 1g; a larger static side belongs where the output is read"
        )
    return size


def size_bytes_or_off(name: str, text: str) -> int | None:
    """Parse a size of at least one byte, or ``off`` (None)."""
    return None if text.strip().lower() == OFF else positive_size_bytes(name, text)


SIZES = (size_bytes, positive_size_bytes, static_bytes, size_bytes_or_off)


def whole_number(name: str, text: str) -> int:
    """Parse a positive whole number."""
    number = natural(text)
    if not number:
        raise ConfigError(f"option {name}={shown(text)} is not a positive whole number up to {LARGEST}")
    return number


def alignment(name: str, text: str) -> Alignment:
    try:
        return Alignment(text.strip().lower())
    except ValueError:
        raise ConfigError(f"option {name}={shown(text)}: choose auto, aligned or unaligned") from None


def snapshot_format(name: str, text: str) -> SnapshotFormat:
    try:
        return SnapshotFormat(text.strip().lower())
    except ValueError:
        raise ConfigError(f"option {name}={shown(text)}: choose native or portable") from None


def trigger_on(name: str, text: str) -> TriggerOn:
    try:
        return next(choice for choice in TriggerOn if choice.value.lower() == text.strip().lower())
    except StopIteration:
        raise ConfigError(f"option {name}={shown(text)}: choose firstBarrier or lastBarrier") from None


def isolation(name: str, text: str) -> Isolation:
    try:
        return Isolation(text.strip().lower())
    except ValueError:
        raise ConfigError(f"option {name}={shown(text)}: choose none or process") from None


def backend(name: str, text: str) -> Backend:
    try:
        return Backend(text.strip().lower())
    except ValueError:
        raise ConfigError(f"option {name}={shown(text)}: choose memory or rocksdb") from None


def log_format(name: str, text: str) -> LogFormat:
    try:
        return LogFormat(text.strip().lower())
    except ValueError:
        raise ConfigError(f"option {name}={shown(text)}: choose text or json") from None


def strategy(name: str, text: str) -> RestartStrategy:
    known = {choice.value.lower(): choice for choice in RestartStrategy}
    if text.strip().lower() not in known:
        raise ConfigError(
            f"option {name}={shown(text)}: choose {', '.join(choice.value for choice in RestartStrategy)}"
        )
    return known[text.strip().lower()]


def sink_target(name: str, text: str) -> SinkTarget:
    try:
        return SinkTarget(text.strip().lower())
    except ValueError:
        raise ConfigError(f"option {name}={shown(text)}: choose own or shared") from None


def fraction(name: str, text: str) -> float:
    """Parse a number from 0 to 1."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise ConfigError(f"option {name}={shown(text)} is not a number from 0 to 1")
    return value


def concurrency(name: str, text: str) -> int:
    """Parse a whole number from 1 to ``MAX_CONCURRENT``."""
    if whole_number(name, text) > MAX_CONCURRENT:
        raise ConfigError(f"option {name}={shown(text)}: at most {MAX_CONCURRENT} checkpoints may be in flight")
    return int(text)


def count_or_unlimited(name: str, text: str) -> int | None:
    """Parse a whole number of at least 0, or ``unlimited`` (None)."""
    if text.strip().lower() == UNLIMITED:
        return None
    number = natural(text)
    if number is None:
        raise ConfigError(f"option {name}={shown(text)} is neither a whole number nor unlimited")
    return number


def ports(name: str, text: str) -> range:
    """Parse a port (``40000``), a range of ports (``40000-40099``), or 0 for any free port."""
    match = _PORTS.match(text)
    first = int(match[1]) if match else -1
    last = int(match[2] or match[1]) if match else -1
    if not 0 <= first <= last <= 65535 or (first == 0 and last > 0):
        raise ConfigError(
            f"option {name}={shown(text)}: write a port, a range such as 40000-40099, or 0 for any free port"
        )
    return range(first, last + 1)


def boolean(name: str, text: str) -> bool:
    value = text.strip().lower()
    if value not in ("true", "false"):
        raise ConfigError(f"option {name}={shown(text)}: choose true or false")
    return value == "true"


class SnapshotFormat(Enum):
    """Format of a snapshot.

    ``PORTABLE`` adds files that other programs can read. They are written after the native snapshot is complete.
    """

    NATIVE = "native"
    PORTABLE = "portable"


class TriggerOn(Enum):
    """Barrier at which a subtask begins an unaligned checkpoint.

    With the first barrier no channel waits. With the last barrier less in-flight data is captured, but channels whose
    barrier was read wait for the last barrier.
    """

    FIRST_BARRIER = "firstBarrier"
    LAST_BARRIER = "lastBarrier"


class Isolation(Enum):
    """Process that runs user functions: the slot's, or a separate process per chain of functions in each subtask."""

    NONE = "none"
    PROCESS = "process"


class Backend(Enum):
    """Store of keyed state while a query runs: memory, or RocksDB on local disk for state larger than memory.

    Both write the same snapshots, so each backend restores the snapshots of the other.
    """

    MEMORY = "memory"
    ROCKSDB = "rocksdb"


class SinkTarget(Enum):
    """Target of a fork's output that user code writes: its own, or one that the original query writes to as well."""

    OWN = "own"
    SHARED = "shared"


class RestartStrategy(Enum):
    """Rule by which a failed query is restarted.

    ``EXPONENTIAL`` and ``FIXED`` limit the number of restarts without progress in between. ``FAILURE_RATE`` limits the
    number of restarts within ``restart_interval_ms``, with or without progress. The delay grows only with
    ``EXPONENTIAL``. With ``NONE`` the first failure ends the query.
    """

    EXPONENTIAL = "exponential"
    FIXED = "fixed"
    FAILURE_RATE = "failureRate"
    NONE = "none"


@dataclass(frozen=True)
class Options:
    """All options of a query. Sizes are in bytes, times in milliseconds.

    Attributes:
        allow_changed_meaning: start even if parameters that the state depends on have changed.
        allow_shared_sink: a fork may write to the output of the query that it was forked from.
        sink_target: target of those outputs of a fork that Penstock cannot identify. None: the option is not given.
        checkpoint_alignment: alignment of periodic checkpoints, and of snapshots requested without one.
        checkpoint_alignment_timeout_ms: longest time for which an AUTO checkpoint stays aligned.
        checkpoint_max_concurrent: most periodic checkpoints in flight. Requested snapshots are not counted.
        checkpoint_tolerable_failures: number of consecutive periodic checkpoints that may fail before the query
            restarts from the last complete one. None: any number.
        checkpoint_trigger_on: see ``TriggerOn``.
        checkpoint_max_inflight_bytes: most in-flight bytes of one checkpoint in one slot. Queues are limited to it; a
            checkpoint stays aligned until its in-flight data fits.
        snapshots_format: format of snapshots requested without one.
        checkpoint_owner_only: folders created for a location have mode 0700; if False, the driver's umask applies.
        checkpoint_capture_memory: most bytes of captured in-flight rows that a slot holds until they are written. If a
            checkpoint needs more, the slot declines it.
        join_max_static_bytes: largest static side of each join. Every slot holds a full copy.
        regexp_max_length: longest text, in characters, for patterns that need a backtracking engine. A longer text is
            an error.
        state_memory: expected size of a slot's state, for the check against Spark's limits. The memory backend does not
            enforce it. With RocksDB it is the memory limit that all stateful subtasks of a slot share.
        inflight_target_ms: most data queued in front of a consumer, as processing time at its present speed. None: as
            much as fits into its memory.
        restart_allow_scale_down: continue with fewer slots if some are missing for ``restart_scale_down_after_ms``, and
            with all of them once they are back.
        sink_retry_timeout_ms: time for which a failing commit is repeated. None: as often as a query is restarted.
        network_tls: encrypt the links between driver and slots, and between slots (``network/tls.py``).
        log_format: format of Penstock's own log lines, in slots and driver, if the user has not set up logging.
        slot_start_timeout_ms: longest time from the launch of a generation until all its slots have registered. After
            it the generation has failed.
        driver_ports, slot_ports: the process listens on one of these ports. ``range(1)``, port 0: any free port.
    """

    parallelism: int | None = None
    max_parallelism: int = 128
    checkpoint_interval_ms: int = 10_000
    checkpoint_alignment: Alignment = Alignment.AUTO
    checkpoint_alignment_timeout_ms: int = 200
    checkpoint_timeout_ms: int = 600_000
    checkpoint_min_pause_ms: int = 0
    checkpoint_max_concurrent: int = 1
    checkpoint_tolerable_failures: int | None = None
    checkpoint_trigger_on: TriggerOn = TriggerOn.FIRST_BARRIER
    checkpoint_max_inflight_bytes: int | None = None
    checkpoint_capture_memory: int = 512 << 20
    checkpoint_owner_only: bool = True
    snapshots_retained: int = 3
    snapshots_format: SnapshotFormat = SnapshotFormat.NATIVE
    allow_older_snapshot: bool = False
    allow_dropped_state: bool = False
    allow_changed_meaning: bool = False
    allow_shared_sink: bool = False
    sink_target: SinkTarget | None = None
    memory_per_gate: int = 32 << 20
    exclusive_window: int = 1 << 20
    flush_interval_ms: int = 10
    inflight_target_ms: int | None = None
    function_isolation: Isolation = Isolation.NONE
    join_max_static_bytes: int = 256 << 20
    regexp_max_length: int = 100_000
    state_backend: Backend = Backend.MEMORY
    state_memory: int = 64 << 20
    restart_attempts: int = 10
    restart_delay_ms: int = 100
    restart_max_delay_ms: int = 10_000
    restart_strategy: RestartStrategy = RestartStrategy.EXPONENTIAL
    restart_jitter: float = 0.1
    restart_interval_ms: int = 600_000
    restart_allow_scale_down: bool = True
    restart_scale_down_after_ms: int = 10_000
    sink_retry_timeout_ms: int | None = None
    log_format: LogFormat = LogFormat.TEXT
    driver_ports: range = range(1)
    slot_ports: range = range(1)
    slot_start_timeout_ms: int = 30_000
    network_tls: bool = False


_PARSERS = {
    "parallelism": ("parallelism", whole_number),
    "maxParallelism": ("max_parallelism", whole_number),
    "checkpoint.interval": ("checkpoint_interval_ms", checkpoint_duration_ms),
    "checkpoint.alignment": ("checkpoint_alignment", alignment),
    "checkpoint.alignmentTimeout": ("checkpoint_alignment_timeout_ms", duration_ms),
    "checkpoint.maxConcurrent": ("checkpoint_max_concurrent", concurrency),
    "checkpoint.tolerableFailures": ("checkpoint_tolerable_failures", count_or_unlimited),
    "checkpoint.triggerOn": ("checkpoint_trigger_on", trigger_on),
    "checkpoint.maxInflightBytes": ("checkpoint_max_inflight_bytes", size_bytes_or_off),
    "checkpoint.captureMemory": ("checkpoint_capture_memory", positive_size_bytes),
    "checkpoint.ownerOnly": ("checkpoint_owner_only", boolean),
    "checkpoint.timeout": ("checkpoint_timeout_ms", checkpoint_duration_ms),
    "checkpoint.minPause": ("checkpoint_min_pause_ms", duration_ms),
    "snapshots.retained": ("snapshots_retained", whole_number),
    "snapshots.format": ("snapshots_format", snapshot_format),
    "snapshots.allowOlder": ("allow_older_snapshot", boolean),
    "snapshots.allowDroppedState": ("allow_dropped_state", boolean),
    "snapshots.allowChangedMeaning": ("allow_changed_meaning", boolean),
    "allowSharedSink": ("allow_shared_sink", boolean),
    "sinkTarget": ("sink_target", sink_target),
    "exchange.memoryPerGate": ("memory_per_gate", positive_size_bytes),
    "exchange.exclusiveWindow": ("exclusive_window", positive_size_bytes),
    "exchange.inflightTarget": ("inflight_target_ms", duration_ms_or_off),
    "exchange.flushInterval": ("flush_interval_ms", duration_ms),
    "driver.port": ("driver_ports", ports),
    "slot.port": ("slot_ports", ports),
    "slot.startTimeout": ("slot_start_timeout_ms", positive_duration_ms),
    "network.tls": ("network_tls", boolean),
    "log.format": ("log_format", log_format),
    "function.isolation": ("function_isolation", isolation),
    "join.maxStaticBytes": ("join_max_static_bytes", static_bytes),
    "regexp.maxLength": ("regexp_max_length", whole_number),
    "state.backend": ("state_backend", backend),
    "state.memory": ("state_memory", size_bytes),
    "restart.attempts": ("restart_attempts", whole_number),
    "restart.delay": ("restart_delay_ms", duration_ms),
    "restart.maxDelay": ("restart_max_delay_ms", duration_ms),
    "restart.strategy": ("restart_strategy", strategy),
    "restart.jitter": ("restart_jitter", fraction),
    "restart.interval": ("restart_interval_ms", duration_ms),
    "restart.allowScaleDown": ("restart_allow_scale_down", boolean),
    "restart.scaleDownAfter": ("restart_scale_down_after_ms", duration_ms),
    "sink.retryTimeout": ("sink_retry_timeout_ms", duration_ms_or_off),
}

_WORDS_FOR_NONE: dict[object, str] = {
    count_or_unlimited: UNLIMITED,
    duration_ms_or_off: OFF,
    size_bytes_or_off: OFF,
}
"""Text that stands for None, by parser."""

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
            raise unknown_option(f"{CONF_PREFIX}{name}", "Penstock", OPTION_NAMES)
        field_name, parse = _PARSERS[known]
        values[field_name] = parse(f"{CONF_PREFIX}{known}", str(text))
    assert set(values) <= {f.name for f in fields(Options)}
    return Options(**values)  # type: ignore[arg-type]


def nearest_name(name: str, known: Iterable[str], likeness: float = 0.8) -> str | None:
    """Return the known name whose spelling is closest to ``name``; None if no name is close enough.

    Case and the prefix ``spark.penstock.`` are ignored.

    Args:
        likeness: least similarity of the two spellings, from 0 to 1 (``difflib``'s ratio).
    """
    from difflib import get_close_matches  # imported here because only errors need it

    by_spelling = {one.lower().removeprefix(CONF_PREFIX): one for one in known}
    found = get_close_matches(name.lower().removeprefix(CONF_PREFIX), by_spelling, 1, likeness)
    return by_spelling[found[0]] if found else None


def unknown_option(name: str, where: str, known: Sequence[str], elsewhere: Sequence[str] = ()) -> ConfigError:
    """Return the error for an unknown option. Its message suggests the nearest name.

    Args:
        name: the option as the user wrote it.
        where: owner of the ``known`` names, for example ``the csv sink``.
        known: names of all options of that owner.
        elsewhere: names of other owners that the user may have meant.
    """
    nearest = nearest_name(name, (*elsewhere, *known))
    hint = f"; did you mean {nearest}?" if nearest else "."
    return ConfigError(f"unknown option {name}{hint} Options of {where}: {', '.join(known) or 'none'}")


def option_texts(options: Options) -> dict[str, str | None]:
    """Return the text of every option by its name; None for an option whose missing value has no text."""
    return {name: _text_of(getattr(options, field), parse) for name, (field, parse) in sorted(_PARSERS.items())}


def _text_of(value: object, parse: object) -> str | None:
    if value is None:
        return _WORDS_FOR_NONE.get(parse)
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, range):
        return str(value[0]) if len(value) == 1 else f"{value[0]}-{value[-1]}"
    if isinstance(value, int) and parse in DURATIONS:
        return _in_units(value, (("h", 3_600_000), ("m", 60_000), ("s", 1_000)), "ms")
    if isinstance(value, int) and parse in SIZES:
        return _in_units(value, (("g", 1 << 30), ("m", 1 << 20), ("k", 1 << 10)), "b")
    return str(value)


def _in_units(value: int, units: Sequence[tuple[str, int]], least: str) -> str:
    """Return the text of a duration or size in the largest unit that divides it evenly."""
    unit, size = next(((unit, size) for unit, size in units if value and value % size == 0), (least, 1))
    return f"{value // size}{unit}"
