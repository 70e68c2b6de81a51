"""Epoch commits: the permission to make an epoch visible, and the log entry that grants it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import msgspec

from penstock.grammar import LogToken


class LogPosition(msgspec.Struct, frozen=True):
    """Position of an entry in a location's log: its number and a random token.

    The token is needed because a copy of the location may have another entry with the same number.
    """

    seq: Annotated[int, msgspec.Meta(ge=0, le=1 << 53)]
    token: LogToken

    @property
    def name(self) -> str:
        """Name of the entry in messages and commands; see ``grammar.PositionName``."""
        return f"{self.seq}-{re.sub('[^0-9A-Za-z]', '', self.token)[:8]}"


@dataclass(frozen=True)
class EpochCommit:
    """Permission to make one epoch visible. It exists only for epochs of a complete, logged snapshot.

    Attributes:
        messages: the sink's commit messages by subtask index, ascending. Subtasks without data are missing. May be
            empty.
        batch: batch id of the epoch, the same for all outputs of the query. No other epoch of the checkpoint location
            ever has it. It stays the same if the epoch is committed again, also by another driver.
        position: the log entry that completes the snapshot of this epoch.
        writer_id: together with ``batch``, identifies the write for an external sink. For the first output it is the
            query's id. See docs/batch-ids.md.
    """

    query_id: str
    epoch: int
    messages: Mapping[int, bytes]
    batch: int = 0
    position: LogPosition | None = None
    writer_id: str = ""
