"""The time of Penstock's regular expressions grows no faster than the text, because texts may be hostile."""

from __future__ import annotations

import re
import sys

import pytest

from penstock.functions.patterns.patterns import like_to_python
from penstock.functions.text import java_uri
from tests.support.places import SOURCE
from tests.support.regex_growth import Pattern, Unknown, grows_too_fast, patterns_of

OWN_TEXT = {
    "connectors/files/hadoop_globs.py": "the path that the query's own program gives",
    "catalyst/trees.py": "the plan of the query's own program",
    "planner/function_table.py": "examples in Spark's own jars, when the docs are made",
    "rest/metric_page.py": "our own docs, when they are made",
}
"""Files whose patterns are applied to trusted texts only, and these texts."""
URI_CHARACTERS = (java_uri._URIC, java_uri._PATH, java_uri._USER, java_uri._REGISTERED)
MADE: dict[str, list[str]] = {
    "glob_regex(source_part)": [],
    "glob_regex(pattern)": [],
    "text": [],
    "like_to_python(pattern, escape)": [like_to_python(like, "\\") for like in ("%a%a%b", "a%_a%b%a_", "%", "a_%_%a")],
    r"f'(?:[{characters}]|{_HEX}|[^\\x00-\\x7f])*+'": [
        rf"(?:[{characters}]|{java_uri._HEX}|[^\x00-\x7f])*+" for characters in URI_CHARACTERS
    ],
    "(colon if i else '') + '([0-9]{2})'": ["([0-9]{2})", ":([0-9]{2})"],
}
"""Patterns that are created at run time, by the expression that creates them. None: a user's own pattern. Globs are
applied to file names of at most 255 bytes; the others to texts of ``patterns.bounded`` or to names of Kafka topics."""


def found() -> list[Pattern | Unknown]:
    return list(patterns_of(SOURCE, "penstock"))


def test_every_pattern_is_found() -> None:
    """The search finds all patterns that modules have compiled. Patterns of the run time are listed above."""
    known = found()
    assert {one.source for one in known if isinstance(one, Unknown)} == set(MADE)
    texts = {one.text for one in known if isinstance(one, Pattern)}
    compiled = {
        value.pattern
        for name, module in list(sys.modules.items())
        if name.startswith("penstock.") and module is not None
        for value in vars(module).values()
        if isinstance(value, re.Pattern)
    }
    assert len(compiled) > 80
    assert compiled <= texts


def test_time_grows_no_faster_than_the_text() -> None:
    patterns = [one for one in found() if isinstance(one, Pattern) and one.where.partition(":")[0] not in OWN_TEXT]
    patterns += [Pattern(source, text, re.DOTALL, False) for source, texts in MADE.items() for text in texts]
    assert len(patterns) > 120
    slow = {one.where: (one.text, attack) for one in patterns if (attack := grows_too_fast(one))}
    assert not slow


@pytest.mark.parametrize(
    ("text", "anywhere"),
    [
        (r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", False),
        (r"^\s*(\d+)\s*(ms|s)?\s*$", False),
        (r"(\w+)\s*=", True),
        (r"%(?:(\d+)\$)?([-#+ 0,(]*)(\d+)?([a-z])", False),
        (r"kafka\.(?:sasl|ssl)\..*(?=\], \[)", True),
        (r"a required\b(.*?);?\s*$", False),
    ],
)
def test_a_pattern_whose_time_grows_faster_is_found(text: str, anywhere: bool) -> None:
    assert grows_too_fast(Pattern("test", text, 0, anywhere))


def test_a_host_with_a_bracket_and_escaped_bytes_takes_no_time() -> None:
    """It took twice as long with each escaped byte."""
    with pytest.raises(java_uri.NotUri):
        java_uri.uri_of("//[" + "%41" * 1_000 + "]\0")
