"""Text of others - snapshots, files, peers - made harmless where it reaches a terminal or a log.

A character that is not printable may steer a terminal (escape sequences, in 7 and 8 bits), turn the order of what is
read (bidirectional marks) or begin a line that was never logged.
"""

from __future__ import annotations

CONTINUED = "\n  | "
"""What a line's end within one log message becomes: what follows is not taken for a line of its own."""


def visible(text: str, kept: str = "") -> str:
    """Return the text with what is not printable written as an escape, as ``repr`` does; ``kept``: stays as it is."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() or character in kept else _escape(character) for character in text
    )


def log_text(text: str) -> str:
    """Return a text for a log message: visible, its lines after the first marked as continued."""
    return text if text.isprintable() else visible(text, "\n\t").replace("\n", CONTINUED)


def json_text(document: str) -> str:
    """Return a JSON document, of the same meaning, without a character that steers a terminal."""
    return "".join(
        character if character.isprintable() or character == "\n" else _json_escape(character) for character in document
    )


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def _json_escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
