"""Forms of the splits of sources. A reader checks the form of each split, because a snapshot may be forged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import msgspec

from penstock.decoding import convert
from penstock.errors import DataError
from penstock.grammar import KafkaOffset, KafkaPartition, KafkaTopic
from penstock.model.manifest import Count, Microseconds
from penstock.model.splits import Split

Positive = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]


class KafkaSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Split of ``kafka``. ``planned_end``: rows up to this offset are read first, as a separate batch."""

    topic: KafkaTopic
    partition: KafkaPartition
    start: KafkaOffset
    planned_end: KafkaOffset | None = None


class KafkaPosition(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    offset: KafkaOffset | None = None


class RateSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    partition: Count
    partitions: Positive
    start_ms: Microseconds  # only its range of 64 bits matters


class RatePosition(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    next: Count | None = None


class BatchSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Split of ``rate-micro-batch``."""

    batch: Count
    partition: Count
    partitions: Positive


class RowsPosition(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Position in a split: the number of rows that were read."""

    rows: Count = 0


class LinesSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Split of ``socket``: lines and their times of arrival. Lines are data, so any text is valid."""

    texts: list[Annotated[str, msgspec.Meta(max_length=1 << 30)]]
    micros: list[Microseconds]


@dataclass(frozen=True)
class SplitForm:
    """Form of a source's splits. ``where``: name of the source for messages."""

    where: str
    spec: type[msgspec.Struct]
    position: type[msgspec.Struct]

    def check(self, split: Split) -> None:
        """Raise DataError for a split that this source cannot have created."""
        try:
            convert(split.spec, self.spec)
            convert(split.position, self.position)
        except msgspec.ValidationError as error:
            raise DataError(
                f"the snapshot has a split that is none of the {self.where} source: {error!s:.200}; it is damaged or "
                "forged"
            ) from error


KAFKA = SplitForm("kafka", KafkaSpec, KafkaPosition)
RATE = SplitForm("rate", RateSpec, RatePosition)
RATE_MICRO_BATCH = SplitForm("rate-micro-batch", BatchSpec, RowsPosition)
SOCKET = SplitForm("socket", LinesSpec, RowsPosition)
