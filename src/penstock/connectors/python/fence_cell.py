"""Fence of a user's sink: one value that the sink stores and replaces with compare-and-set.

A stream writer that has the methods ``readFence`` and ``replaceFence`` is fenced. ``docs/fencing.md`` describes the
guarantees that they and ``commit`` must give. File sinks need a log and a directory; a sink with transactions needs
only this value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

import msgspec

from penstock.connectors.base import FenceOpener
from penstock.connectors.fence import ATTEMPTS, LOST, FenceRecord
from penstock.decoding import decode_json
from penstock.errors import SinkError, SinkFenced
from penstock.grammar import FenceToken
from penstock.model.commits import LogPosition
from penstock.operators.python.user_code import user_errors


@runtime_checkable
class FencedWriter(Protocol):
    """Methods of a user's stream writer that supports a fence."""

    def readFence(self, queryId: str) -> bytes | None:  # noqa: N802, N803 - as PySpark names such methods
        """Return the stored value of a query, or None."""

    def replaceFence(self, queryId: str, expected: bytes | None, value: bytes) -> bool:  # noqa: N802, N803
        """Store ``value`` atomically if the stored value is ``expected``. Return True if it was stored."""


class FenceValue(msgspec.Struct, frozen=True):
    """Value of the fence: the opener's random token and the last recorded position."""

    token: FenceToken
    committed: FenceRecord


class FenceCell:
    """Fence of one sink of the user, from the view of one driver.

    Args:
        writer: returns the user's writer, and creates it if necessary.
        query_id: id of the query, by which the value is stored.
        output: name of the output, for messages.
    """

    def __init__(self, writer: Callable[[], FencedWriter], query_id: str, output: str) -> None:
        self._writer = writer
        self._query_id = query_id
        self._output = output
        self._opener: FenceOpener | None = None
        self._value: FenceValue | None = None

    def check(self, opener: FenceOpener) -> bool:
        """Check that the location contains all output, as ``Fence.check`` does."""
        return self._committed(self._read(), opener).admits(opener, self._output)

    def written_from(self) -> str:
        """Return the path of the location that committed last; empty if no location has committed."""
        held = self._read()
        return "" if held is None else held.committed.location

    def open(self, opener: FenceOpener) -> str:
        """Take over the output from all other drivers, as ``Fence.open`` does."""
        for _ in range(ATTEMPTS):
            held = self._read()
            committed = self._committed(held, opener)
            opened = committed.after_takeover(opener, self._output)
            if opened == committed and held is not None and held == self._value:
                return held.token
            value = FenceValue(opener.token(), opened)
            if not self._replace(held, value):
                continue
            opener.check_owned()
            self._value, self._opener = value, opener
            return value.token
        raise SinkError(f"{self._output}: other drivers take this output over without pause; stop them first")

    def record(self, position: LogPosition, next_batch: int = 0) -> bytes:
        """Record a position, see ``SinkCommitter.hold``.

        Returns:
            The value that must still be stored when the rows become visible.

        Raises:
            SinkFenced: another driver has the output.
        """
        held, opener = self._value, self._opener
        assert held is not None, "open comes first"
        assert opener is not None, "open comes first"
        value = FenceValue(held.token, held.committed.advanced_to(opener, position, next_batch))
        if value != held and not self._replace(held, value) and self._read() != value:
            raise self.lost()
        self._value = value
        return msgspec.json.encode(value)

    @property
    def next_batch(self) -> int:
        """Exclusive upper bound of the batch ids that sinks may have received."""
        return 0 if self._value is None else self._value.committed.next_batch

    def is_lost(self) -> bool:
        """Return True if another driver has opened the fence."""
        return self._value is not None and self._read() != self._value

    def lost(self) -> SinkFenced:
        """Return the error of a driver that has lost the output."""
        return SinkFenced(f"{self._output}: {LOST}")

    @staticmethod
    def _committed(held: FenceValue | None, opener: FenceOpener) -> FenceRecord:
        return FenceRecord() if held is None else held.committed.for_opener(opener)

    def _read(self) -> FenceValue | None:
        with user_errors(self._output):
            data = self._writer().readFence(self._query_id)
        if data is None:
            return None
        try:
            return decode_json(bytes(data), FenceValue)
        except (msgspec.DecodeError, RecursionError, TypeError) as error:
            raise SinkError(
                f"{self._output}: readFence returned a value that replaceFence never got: {error!s:.200}"
            ) from error

    def _replace(self, held: FenceValue | None, value: FenceValue) -> bool:
        expected = None if held is None else msgspec.json.encode(held)
        with user_errors(self._output):
            return bool(self._writer().replaceFence(self._query_id, expected, msgspec.json.encode(value)))
