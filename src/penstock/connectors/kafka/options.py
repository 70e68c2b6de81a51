"""Options of the Kafka source, with the names of Spark's "Structured Streaming + Kafka Integration Guide" (4.x).

These options select topics, start offsets and limits. ``client.py`` parses the configuration of the client
(``kafka.*``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from penstock.config import LARGEST, natural, shown
from penstock.connectors.option_texts import OptionTexts
from penstock.errors import ConfigError, NotSupported
from penstock.functions.patterns.java_patterns import UnsafePattern, translate
from penstock.grammar import MAX_PARTITION, TOPIC

EARLIEST = -2
LATEST = -1
"""``EARLIEST`` and ``LATEST`` stand for the ends of a partition, in ``startingOffsets`` and in Kafka's protocol."""

WHERE = "kafka source"
CLIENT_PREFIX = "kafka."

Offsets = dict[str, dict[int, int]]
"""Topic -> partition -> offset or timestamp."""

_CHOICES = ("assign", "subscribe", "subscribePattern")
_EXAMPLE = '{"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}'
_TIMES_EXAMPLE = '{"topicA":{"0":1700000000000,"1":1700000000000}}'
_HINTS = ("minPartitions", "maxRecordsPerPartition", "groupIdPrefix", "kafkaConsumer.pollTimeoutMs")
"""Options without effect. In Spark they affect the division of batches into tasks, timeouts and group names."""
_BATCHES = ("minOffsetsPerTrigger", "maxTriggerDelay")
_ENDS = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")


class Choice(Enum):
    """Way to select partitions, with Spark's name in descriptions of sources."""

    ASSIGN = "Assign"
    SUBSCRIBE = "Subscribe"
    PATTERN = "SubscribePattern"


@dataclass(frozen=True)
class Topics:
    """Selection of the partitions to read. The choice decides which one of the other fields is set.

    Attributes:
        choice: the way to select the partitions.
        partitions: topic -> partitions (ASSIGN).
        names: topics (SUBSCRIBE).
        pattern: regular expression that matches the whole name of a topic (PATTERN).
    """

    choice: Choice
    partitions: dict[str, list[int]] = field(default_factory=dict)
    names: tuple[str, ...] = ()
    pattern: str = ""

    def describe(self) -> str:
        if self.choice is Choice.ASSIGN:
            found = (f"{topic}-{p}" for topic in sorted(self.partitions) for p in self.partitions[topic])
            return f"Assign[{', '.join(found)}]"
        return f"{self.choice.value}[{self.pattern or ', '.join(self.names)}]"

    def matches(self, topic: str) -> bool:
        return translate(self.pattern).compiled.fullmatch(topic) is not None

    @property
    def named(self) -> tuple[str, ...]:
        """The topics that must exist; none for a pattern."""
        return tuple(sorted(self.partitions)) if self.choice is Choice.ASSIGN else self.names


@dataclass(frozen=True)
class Start:
    """Start position of a new query. Of the first three fields, the first one that is set applies.

    Attributes:
        timestamp_ms: one timestamp for all partitions.
        timestamps_ms: a timestamp for each partition.
        offsets: an offset for each partition, or ``EARLIEST`` or ``LATEST`` for all partitions.
        latest_if_none: start at the end of a partition that has no row at or after its timestamp; False: raise an
            error.
    """

    timestamp_ms: int | None = None
    timestamps_ms: Offsets | None = None
    offsets: Offsets | int = LATEST
    latest_if_none: bool = False


@dataclass(frozen=True)
class KafkaOptions:
    """All options except those of the client.

    Attributes:
        max_rows_per_epoch: ``maxOffsetsPerTrigger``; None: no limit.
        fetch_retries: number of attempts to list the topics at the first start. Later, partitions that are missing in
            this number of successive discoveries are reported as lost.
        retry_interval_ms: pause between two attempts at the first start, in milliseconds.
    """

    topics: Topics
    start: Start
    fail_on_data_loss: bool
    include_headers: bool
    max_rows_per_epoch: int | None
    fetch_retries: int
    retry_interval_ms: int


def parse_kafka_options(texts: Mapping[str, str]) -> KafkaOptions:
    """Parse all options except ``kafka.*``, which ``client_config`` parses.

    Raises:
        ConfigError: an option is unknown, or its value is invalid.
        NotSupported: an option is possible only with micro-batches.
    """
    options = OptionTexts(WHERE, {k: v for k, v in texts.items() if not k.lower().startswith(CLIENT_PREFIX)})
    for name in _ENDS:
        if options.has_refused(name):
            raise ConfigError(f"option {name} of the {WHERE}: a stream has no end; leave it out")
    for name in _BATCHES:
        if options.has_refused(name):
            raise NotSupported(
                f"option {name} of the {WHERE}: rows are read as they come, there is no batch that could wait for "
                "more; leave it out"
            )
    options.without_effect(*_HINTS)
    parsed = KafkaOptions(
        topics=_topics(options),
        start=_start(options),
        fail_on_data_loss=options.flag("failOnDataLoss", True),
        include_headers=options.flag("includeHeaders", False),
        max_rows_per_epoch=options.count("maxOffsetsPerTrigger"),
        fetch_retries=options.count("fetchOffset.numRetries") or 3,
        retry_interval_ms=options.count("fetchOffset.retryIntervalMs") or 10,
    )
    _check_named(parsed.topics, parsed.start)
    options.finish()
    return parsed


def _check_named(topics: Topics, start: Start) -> None:
    """Refuse start offsets if a topic that is read has none, or if they have a topic that is not read.

    Other partitions of a topic are checked later, because only the cluster knows them.
    """
    name, given = "startingOffsets", start.offsets
    if start.timestamps_ms is not None:
        name, given = "startingOffsetsByTimestamp", start.timestamps_ms
    if start.timestamp_ms is not None or isinstance(given, int):
        return
    missing = [topic for topic in topics.named if topic not in given]
    if topics.choice is Choice.PATTERN:
        other = [topic for topic in sorted(given) if not topics.matches(topic)]
    else:
        other = [topic for topic in sorted(given) if topic not in topics.named]
    for topic, partitions in topics.partitions.items():
        numbers = given.get(topic, {})
        missing += [f"{topic}-{p}" for p in partitions if topic in given and p not in numbers]
        other += [f"{topic}-{p}" for p in sorted(numbers) if p not in partitions]
    if missing or other:
        raise ConfigError(
            f"option {name} of the {WHERE}: it must name every partition that is read and no other"
            + (f"; missing: {', '.join(missing)}" if missing else "")
            + (f"; not read: {', '.join(other)}" if other else "")
            + "; -1 stands for latest, -2 for earliest"
        )


def _topics(options: OptionTexts) -> Topics:
    given = {name: text for name in _CHOICES if (text := options.optional(name)) is not None}
    if len(given) != 1:
        what = "only one may be given" if given else "one of them must be given"
        raise ConfigError(f"options {', '.join(_CHOICES)} of the {WHERE}: {what}, to say which topics are read")
    [(name, text)] = given.items()
    if name == "subscribe":
        names = tuple(dict.fromkeys(topic.strip() for topic in text.split(",") if topic.strip()))
        if not names:
            raise options.bad(name, text, "name at least one topic")
        _check_topics(options, name, names)
        return Topics(Choice.SUBSCRIBE, names=names)
    if name == "subscribePattern":
        pattern = text.strip()
        if not pattern:
            raise options.bad(name, text, "the pattern is empty")
        try:
            translate(pattern)
        except (UnsafePattern, re.error) as error:
            raise options.bad(name, text, f"not a pattern that means the same in Java and here: {error}") from None
        return Topics(Choice.PATTERN, pattern=pattern)
    found = _json(options, name, '{"topicA":[0,1],"topicB":[2,4]}')
    if not found or not all(isinstance(p, list) and p and all(map(_is_partition, p)) for p in found.values()):
        raise options.bad(name, text, 'write for example {"topicA":[0,1],"topicB":[2,4]}')
    _check_topics(options, name, found)
    return Topics(Choice.ASSIGN, partitions={topic: sorted(set(numbers)) for topic, numbers in found.items()})


def _start(options: OptionTexts) -> Start:
    strategy = options.only("startingOffsetsByTimestampStrategy", ("error", "latest")) or "error"
    timestamp = options.optional("startingTimestamp")
    by_timestamp = options.optional("startingOffsetsByTimestamp")
    offsets = options.text("startingOffsets", "latest").strip()
    named = {"latest": LATEST, "earliest": EARLIEST}.get(offsets.lower())
    parsed = _per_partition(options, "startingOffsets", EARLIEST) if named is None else named
    timestamp_ms = None if timestamp is None else natural(timestamp)
    if timestamp is not None and timestamp_ms is None:
        raise options.bad("startingTimestamp", timestamp, "write milliseconds since 1970, for example 1700000000000")
    return Start(
        timestamp_ms=timestamp_ms,
        timestamps_ms=None if by_timestamp is None else _per_partition(options, "startingOffsetsByTimestamp", 0),
        offsets=parsed,
        latest_if_none=strategy.strip().lower() == "latest",
    )


def _per_partition(options: OptionTexts, name: str, least: int) -> Offsets:
    """Parse an option with one number per partition. ``least``: the smallest allowed number."""
    example = _EXAMPLE if least < 0 else _TIMES_EXAMPLE
    found = _json(options, name, example)
    for partitions in found.values():
        valid = (
            isinstance(partitions, dict)
            and partitions
            and all(
                (number := natural(key)) is not None and number <= MAX_PARTITION and _is_number(value, least)
                for key, value in partitions.items()
            )
        )
        if not valid:
            raise options.bad(name, options.text(name), f"write for example {example}")
    _check_topics(options, name, found)
    return {topic: {int(key): value for key, value in partitions.items()} for topic, partitions in found.items()}


def _json(options: OptionTexts, name: str, example: str) -> dict[str, Any]:
    text = options.text(name)
    try:
        found = json.loads(text, object_pairs_hook=_unique)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise options.bad(name, text, f"write for example {example}")
    return found


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Convert the members of a JSON object to a dict. Refuse duplicate names, which the parser would drop silently."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name comes twice")
    return found


def _check_topics(options: OptionTexts, name: str, topics: Iterable[str]) -> None:
    """Refuse invalid topic names. Otherwise requests for them would be repeated until a timeout."""
    for topic in topics:
        if not re.fullmatch(TOPIC, topic):
            raise options.bad(
                name, options.text(name), f"{shown(topic)} is not a name of a topic: 1 to 249 of letters, digits, . _ -"
            )


def _is_partition(value: object) -> bool:
    return _is_number(value, 0) and value <= MAX_PARTITION  # type: ignore[operator]


def _is_number(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= LARGEST
