"""Options, parsed once into frozen dataclasses. Names are the part behind ``spark.penstock.``."""

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
"""Checkpoints in flight: each holds what it captured until that is durable."""
MAX_STATIC_BYTES = 1 << 30
"""Of one join's static side: its texts must fit one Arrow array, and the driver holds them several times while it hands
them to Spark."""

OFF = "off"
UNLIMITED = "unlimited"

SHOWN_CHARACTERS = 200
"""Longest part of a wrong value in a message."""
LARGEST = 2**63 - 1
"""Largest whole number: Spark reads them as a Java long."""
LONGEST_MS = 100 * 365 * 86_400_000
"""Longest duration: 100 years. Much longer waits do not fit the operating system's clock."""
LEAST_INTERVAL_MS = 10
"""Shortest checkpoint interval and time-out, as in Flink: below it a query does little but checkpoints, or completes
none."""

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
    """``"10s"``, ``"200ms"``, ``"5 min"`` or a bare number of milliseconds."""
    match = _DURATION.match(text.lower())
    if match is None:
        raise ConfigError(f"option {name}={shown(text)} is not a duration; write for example 200ms, 10s or 5m")
    duration = int(float(match[1]) * _DURATION_MS[match[2]])
    if duration > LONGEST_MS:
        raise ConfigError(f"option {name}={shown(text)}: at most 100 years, which are 876000h")
    return duration


def positive_duration_ms(name: str, text: str) -> int:
    """A duration of at least a millisecond."""
    duration = duration_ms(name, text)
    if duration < 1:
        raise ConfigError(f"option {name}={shown(text)}: must be 1ms or longer")
    return duration


def checkpoint_duration_ms(name: str, text: str) -> int:
    """The interval or time-out of checkpoints: a duration of at least ``LEAST_INTERVAL_MS``."""
    duration = duration_ms(name, text)
    if duration < LEAST_INTERVAL_MS:
        raise ConfigError(f"option {name}={shown(text)}: must be {LEAST_INTERVAL_MS}ms or longer")
    return duration


def duration_ms_or_off(name: str, text: str) -> int | None:
    """A duration, or ``off``."""
    return None if text.strip().lower() == OFF else duration_ms(name, text)


DURATIONS = (duration_ms, positive_duration_ms, checkpoint_duration_ms, duration_ms_or_off)


def size_bytes(name: str, text: str) -> int:
    """``"32k"``, ``"8m"``, ``"1g"`` or a bare number of bytes."""
    match = _SIZE.match(text.lower())
    if match is None:
        raise ConfigError(f"option {name}={shown(text)} is not a size; write for example 32k, 8m or 1g")
    size = int(float(match[1]) * _SIZE_BYTES[(match[2] or "b")[0]])
    if size > LARGEST:
        raise ConfigError(f"option {name}={shown(text)}: at most {LARGEST} bytes")
    return size


def positive_size_bytes(name: str, text: str) -> int:
    """A size of at least a byte."""
    size = size_bytes(name, text)
    if size < 1:
        raise ConfigError(f"option {name}={shown(text)}: must be 1 byte or more")
    return size


def static_bytes(name: str, text: str) -> int:
    """A size up to ``MAX_STATIC_BYTES``."""
    size = size_bytes(name, text)
    if size > MAX_STATIC_BYTES:
        raise ConfigError(
            f"option {name}={shown(text)}: at most 1g; a larger static side belongs where the output is read"
        )
    return size


def size_bytes_or_off(name: str, text: str) -> int | None:
    """A size of at least a byte, or ``off``."""
    return None if text.strip().lower() == OFF else positive_size_bytes(name, text)


SIZES = (size_bytes, positive_size_bytes, static_bytes, size_bytes_or_off)


def whole_number(name: str, text: str) -> int:
    """A positive whole number."""
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
    """1 to ``MAX_CONCURRENT``."""
    if whole_number(name, text) > MAX_CONCURRENT:
        raise ConfigError(f"option {name}={shown(text)}: at most {MAX_CONCURRENT} checkpoints may be in flight")
    return int(text)


def count_or_unlimited(name: str, text: str) -> int | None:
    """A whole number from 0 on, or ``unlimited``."""
    if text.strip().lower() == UNLIMITED:
        return None
    number = natural(text)
    if number is None:
        raise ConfigError(f"option {name}={shown(text)} is neither a whole number nor unlimited")
    return number


def ports(name: str, text: str) -> range:
    """``40000``, ``40000-40099``, or 0 for any free one."""
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
    """``portable``: what other programs read, too; written when the native snapshot is complete."""

    NATIVE = "native"
    PORTABLE = "portable"


class TriggerOn(Enum):
    """Barrier with which an unaligned checkpoint begins at a subtask.

    With the first one nothing ever waits. With the last one less data is in flight, but channels whose barrier was read
    wait for it.
    """

    FIRST_BARRIER = "firstBarrier"
    LAST_BARRIER = "lastBarrier"


class Isolation(Enum):
    """Process of user functions: the slot's, or one of their own for each chain of them in each subtask."""

    NONE = "none"
    PROCESS = "process"


class Backend(Enum):
    """Store of keyed state while a query runs: memory, or RocksDB on local disk for state larger than memory.

    Snapshots are the same. Each backend restores those of the other.
    """

    MEMORY = "memory"
    ROCKSDB = "rocksdb"


class SinkTarget(Enum):
    """Target of the user's code in a fork: one of its own, or one that its origin writes to as well."""

    OWN = "own"
    SHARED = "shared"


class RestartStrategy(Enum):
    """``EXPONENTIAL`` and ``FIXED`` bound restarts without progress, ``FAILURE_RATE`` those within a time, whatever
    completes in between; only with ``EXPONENTIAL`` the pause grows. ``NONE``: the first failure ends the query."""

    EXPONENTIAL = "exponential"
    FIXED = "fixed"
    FAILURE_RATE = "failureRate"
    NONE = "none"


@dataclass(frozen=True)
class Options:
    """All options of a query. Sizes in bytes, times in milliseconds.

    Attributes:
        allow_changed_meaning: start even if parameters that the state depends on have changed.
        allow_shared_sink: a fork may write to where the query writes that it was forked from.
        sink_target: for the outputs of a fork whose target Penstock does not know. None: the option is not given.
        checkpoint_alignment: of periodic checkpoints and of snapshots that do not say otherwise.
        checkpoint_alignment_timeout_ms: how long an AUTO checkpoint may stay aligned.
        checkpoint_max_concurrent: periodic checkpoints in flight; those that users ask for come on top.
        checkpoint_tolerable_failures: how many periodic checkpoints in a row may fail before the query restarts from
            the last complete one; None: any number.
        checkpoint_trigger_on: see ``TriggerOn``.
        checkpoint_max_inflight_bytes: in-flight bytes of one checkpoint in one slot. Queues are limited to it; a
            checkpoint stays aligned until what it captures fits.
        snapshots_format: of snapshots that users ask for and that do not say otherwise.
        checkpoint_owner_only: folders created for a location have mode 0700; if False, the driver's umask applies.
        checkpoint_capture_memory: bytes of captured rows of a slot that may wait to be written; beyond, it declines.
        join_max_static_bytes: of each join's static side, which every slot holds whole.
        regexp_max_length: longest text, in characters, to which a pattern is applied that only a backtracking engine
            can run; a longer text is an error.
        state_memory: what a slot's state is expected to take, for the check against Spark's limits. No bound in memory;
            what RocksDB may use, of a slot's subtasks with operators together.
        inflight_target_ms: how much work may lie in front of a consumer, in time at its present speed; None: as much as
            fits into its memory.
        restart_allow_scale_down: go on with fewer slots when some are missing for ``restart_scale_down_after_ms``, and
            with all of them once they are back.
        sink_retry_timeout_ms: time for which a failing commit is repeated. None: as often as a query is restarted.
        network_tls: links between driver and slots, and between slots, are encrypted (``network/tls.py``).
        log_format: of Penstock's own lines, in slots and driver, where the user has not set up logging.
        slot_start_timeout_ms: time from the launch of a generation until all its slots have registered. Later the
            generation has failed.
        driver_ports, slot_ports: one of them is listened on; ``range(1)``, port 0, is any free one.
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
"""Word for no value, by parser."""

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
    """Return the known name that is spelled most like ``name``; None if none is.

    Case and the prefix ``spark.penstock.`` do not count.

    Args:
        likeness: of the two spellings at least; 1 is equality (``difflib``'s ratio).
    """
    from difflib import get_close_matches  # an error alone needs it

    by_spelling = {one.lower().removeprefix(CONF_PREFIX): one for one in known}
    found = get_close_matches(name.lower().removeprefix(CONF_PREFIX), by_spelling, 1, likeness)
    return by_spelling[found[0]] if found else None


def unknown_option(name: str, where: str, known: Sequence[str], elsewhere: Sequence[str] = ()) -> ConfigError:
    """Return the error for an option that nothing reads. It suggests the nearest name.

    Args:
        name: as it was given.
        where: owner of the ``known`` names, for example ``the csv sink``.
        known: names of all its options.
        elsewhere: further names that the user may have meant.
    """
    nearest = nearest_name(name, (*elsewhere, *known))
    hint = f"; did you mean {nearest}?" if nearest else "."
    return ConfigError(f"unknown option {name}{hint} Options of {where}: {', '.join(known) or 'none'}")


def option_texts(options: Options) -> dict[str, str | None]:
    """Return the text of every option by its name; None for one without a value and without a word for that."""
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
    """Return the duration in the largest unit of which it is a whole number."""
    unit, size = next(((unit, size) for unit, size in units if value and value % size == 0), (least, 1))
    return f"{value // size}{unit}"
