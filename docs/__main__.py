"""``python -m docs``: write the parts of ``protocol.md`` that are generated from the code."""

from __future__ import annotations

from pathlib import Path

from docs.message_table import with_messages
from docs.state_diagrams import with_diagrams

PROTOCOL = Path(__file__).with_name("protocol.md")


def generated(page: str) -> str:
    """Return the page with its generated parts as the code has them now."""
    return with_messages(with_diagrams(page))


if __name__ == "__main__":
    PROTOCOL.write_text(generated(PROTOCOL.read_text()))
