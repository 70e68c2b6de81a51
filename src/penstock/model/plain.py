"""Plain data. Besides Arrow data, nothing else is ever decoded from storage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    Plain: TypeAlias = bool | int | float | str | list["Plain"] | dict[str, "Plain"] | None
else:
    Plain = Any  # msgspec, which decodes the structs that hold it, cannot resolve a recursive alias
"""A value that JSON can hold."""
