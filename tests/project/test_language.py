"""Plain English: docstrings and comments have none of the phrases that readers stumbled over."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator

import pytest

from tests.support.places import ROOT

BANNED = {
    r"\b(?:whoever|somebody|nobody|a stranger)\b": "name the software: the caller, another driver, a reader",
    r"\b(?:is|are|was|were) (?:not )?to be\b": "must, may, can or will",
    r"\b(?:has|have) to be able\b": "must",
    r"\b(?:is|are) allowed not to\b": "need not",
    r"\bbehind (?:a|an|the|that|this|it|its|each|every) (?:\w+ )?"
    r"(?:restore|restart|recovery|rollback|commit|failure|stop|end of)\b": "after",
    r"\bin order of time\b": "before, after",
    r"\b(?:brain|breathers?|seats?|wishes)\b": "the term of the glossary",
}
"""Phrases and their replacements. Reviews add to the list."""
FIRST_WORDS = re.compile(r"(?:What|Whether|Who|Whose|How|Of|As|Whatever|When|Where|To be)\b")
"""No docstring begins with these words. It begins with a command ("Return the rows ...") or with a noun phrase ("Input
gate of one subtask.")."""
SOURCES = sorted((ROOT / "src").rglob("*.py"))


def prose(text: str) -> Iterator[tuple[int, str]]:
    """Yield line number and text of every comment, docstring and string that documents a name."""
    for node in ast.walk(ast.parse(text)):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else []:
            match statement:
                case ast.Expr(value=ast.Constant(value=str(words))):
                    yield statement.lineno, words
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def faults(text: str) -> list[str]:
    found = []
    for line, words in prose(text):
        joined = " ".join(words.split())
        found += [f"{line}: {match[0]!r}" for banned in BANNED for match in re.finditer(banned, joined, re.IGNORECASE)]
        if not joined.startswith("#") and (match := FIRST_WORDS.match(joined)):
            found.append(f"{line}: begins with {match[0]!r}")
    return found


def test_the_package_has_no_banned_phrase() -> None:
    found = [f"{path.relative_to(ROOT)}:{fault}" for path in SOURCES for fault in faults(path.read_text("utf-8"))]
    assert found == [], BANNED


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ('"""Rows of a batch."""\n# A plain comment.\nx = "whoever"', 0),
        ('"""What a batch has."""', 1),
        ("def f():\n    '''Return what\n    is to be\n    done.'''", 1),
        ("x = 1  # nobody reads it\n'''Of one slot.'''", 2),
        ("class C:\n    x: int\n    '''Behind a second restart it is None, so it has to be able to wait.'''", 2),
        ("# Read behind the commit.", 1),
    ],
)
def test_banned_phrases_are_found(text: str, number: int) -> None:
    assert len(faults(text)) == number
