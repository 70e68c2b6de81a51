"""Commit points: the permit to make an epoch visible, and the entry of the log that it comes from."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import msgspec

from penstock.grammar import LogToken


class LogPosition(msgspec.Struct, frozen=True):
    """Entry of a location's log: its number, and a random token, because a copy may have another entry with it."""

    seq: Annotated[int, msgspec.Meta(ge=0, le=1 << 53)]
    token: LogToken

    @property
    def name(self) -> str:
        """Name of the entry in messages and commands, see ``grammar.PositionName``."""
        return f"{self.seq}-{re.sub('[^0-9A-Za-z]', '', self.token)[:8]}"


@dataclass(frozen=True)
class EpochCommit:
    """The permit to make one epoch visible: exists only for epochs of a complete, logged snapshot.

    ``messages``: by subtask index ascending; subtasks without data are missing. May be empty.
    ``batch``: the epoch's batch id, the same for all outputs of the query. No other epoch of the checkpoint location
    ever has it, and it is the same when the epoch is handed over again, by whichever driver.
    ``position``: the entry of the location's log that completes the snapshot of this epoch.
    ``writer_id``: with ``batch``, the identity of the write for an external sink; the query's id for the first output.
    See docs/batch-ids.md.
    """

    query_id: str
    epoch: int
    messages: Mapping[int, bytes]
    batch: int = 0
    position: LogPosition | None = None
    writer_id: str = ""
