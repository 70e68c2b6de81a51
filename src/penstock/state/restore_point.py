"""A moment that a table can be brought back to where it is, without reading anything."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.state.table import KeyedTable


class RestorePoint(ABC):
    """What ``TableCapture.keep`` has kept of a table, beyond the table's ``close``.

    Call order: ``go_back`` or ``release``, once, from any thread; for ``go_back`` the table's own must be through with
    it. A table has several of these at a time, for several captures; ``go_back`` makes the others void.
    """

    @abstractmethod
    def go_back(self) -> KeyedTable | None:
        """The table as it was at the capture, in use again, as if loaded: this is its capture 0. None: so much of it
        has changed since that this was given up."""

    @abstractmethod
    def release(self) -> None:
        """Nobody will go back: the table need not keep anything for it. Idempotent."""
