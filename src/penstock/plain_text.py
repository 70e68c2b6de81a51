"""Escapes for untrusted text (from snapshots, files and peers) that goes to a terminal or a log.

A character that is not printable may control the terminal (escape sequences, in 7 and 8 bits), reverse the order of the
displayed text (bidirectional marks) or forge a line of the log.
"""

from __future__ import annotations

CONTINUED = "\n  | "
"""Replaces a line end within one log message, so that the rest does not read as a log line of its own."""


def visible(text: str, kept: str = "") -> str:
    """Return the text with unprintable characters as escapes, as in ``repr``. Characters in ``kept`` stay."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() or character in kept else _escape(character) for character in text
    )


def log_text(text: str) -> str:
    """Return the text for a log message: with escapes, and each line after the first marked as a continuation."""
    return text if text.isprintable() else visible(text, "\n\t").replace("\n", CONTINUED)


def json_text(document: str) -> str:
    """Return an equal JSON document with unprintable characters as JSON escapes. Line ends stay."""
    return "".join(
        character if character.isprintable() or character == "\n" else _json_escape(character) for character in document
    )


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def _json_escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
