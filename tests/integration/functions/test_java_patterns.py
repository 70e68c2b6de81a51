"""Regular expressions made at random match in Python what they match in Java, groups included."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from penstock.errors import EvaluationError
from penstock.functions.patterns import patterns
from penstock.functions.patterns.java_patterns import JavaPattern, UnsafePattern, translate
from penstock.functions.patterns.patterns import regexp_extract as exactly
from penstock.functions.patterns.re2_patterns import has_start_anchor, re2_pattern, re2_replacement
from penstock.functions.text import fast_texts
from penstock.functions.text.fast_texts import regexp_extract
from tests.support.functions.expression_cases_patterns import SAFE, UNSAFE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNT = int(os.environ.get("PENSTOCK_PATTERNS", "2000"))
TEXTS = ["", "a", "b", "ab", "ba", "aab", "abab", "abcab", "aaabbb", "cabbac", "bbaacab", "abcabcab"]
QUANTIFIERS = ["", "", "", "?", "??", "*", "+", "*?", "{1,2}", "{2}", "+?"]
SPANS = """
    StringBuilder out = new StringBuilder();
    java.util.regex.Pattern pattern = java.util.regex.Pattern.compile(regex);
    for (int t = 0; t < texts.length; t++) {
        java.util.regex.Matcher matcher = pattern.matcher(texts[t]);
        while (matcher.find()) {
            for (int g = 0; g <= matcher.groupCount(); g++)
                out.append(matcher.start(g)).append(' ').append(matcher.end(g)).append(' ');
        }
        out.append(";");
    }
    return out.toString();
"""


def _atom(chance: random.Random, depth: int) -> str:
    kind = chance.random()
    if kind < 0.45 or depth <= 0:
        return chance.choice("aabbc")
    if kind < 0.52:
        return chance.choice([".", "[ab]", "[^a]", r"\w"])
    inner = _alternatives(chance, depth - 1)
    return chance.choice(["({})", "({})?", "(?:{})", "(?={})", "(?!{})"]).format(inner)


def _alternatives(chance: random.Random, depth: int) -> str:
    sequences = []
    for _ in range(chance.choice([1, 1, 1, 2, 3])):
        atoms = [_atom(chance, depth) for _ in range(chance.choice([1, 1, 2, 2, 3]))]
        loops = [atom if atom.startswith(("(?=", "(?!")) or atom.endswith("?") else atom + chance.choice(QUANTIFIERS)
                 for atom in atoms]  # fmt: skip
        sequences.append("".join(loops))
    return "|".join(sequences)


def _understood(chance: random.Random) -> Iterator[tuple[str, JavaPattern]]:
    """Those of ``COUNT`` random patterns that are."""
    for _ in range(COUNT):
        pattern = _alternatives(chance, 3)
        try:
            yield pattern, translate(pattern)
        except UnsafePattern:
            continue


def _spans(java: JavaPattern, text: str) -> list[int]:
    return [place for match in java.compiled.finditer(text) for g in range(java.compiled.groups + 1)
            for place in match.span(g)]  # fmt: skip


@pytest.mark.spark
def test_random_patterns_match_as_in_java(spark: SparkSession) -> None:
    jvm, gateway = spark._jvm, spark.sparkContext._gateway
    find = jvm.java.lang.Class.forName
    names, types = gateway.new_array(jvm.java.lang.String, 2), gateway.new_array(jvm.java.lang.Class, 2)
    names[0], names[1] = "regex", "texts"
    types[0], types[1] = find("java.lang.String"), find("[Ljava.lang.String;")
    evaluator = jvm.org.codehaus.janino.ScriptEvaluator()
    evaluator.setReturnType(find("java.lang.String"))
    evaluator.setParameters(names, types)
    evaluator.cook(SPANS)
    arguments, texts = gateway.new_array(jvm.java.lang.Object, 2), gateway.new_array(jvm.java.lang.String, len(TEXTS))
    for place, text in enumerate(TEXTS):
        texts[place] = text
    arguments[1] = texts
    chance = random.Random(11)
    compared = 0
    for pattern, java in _understood(chance):
        arguments[0] = pattern
        theirs = [list(map(int, spans.split())) for spans in str(evaluator.evaluate(arguments)).split(";")]
        sure = {
            2 * g + side for g in range(java.compiled.groups + 1) if g not in java.ambiguous_groups for side in (0, 1)
        }
        width = 2 * (java.compiled.groups + 1)
        for text, spans in zip(TEXTS, theirs, strict=False):
            ours = _spans(java, text)
            if java.may_be_empty:  # where they go on after nothing differs
                spans, ours = spans[:width], ours[:width]
            differing = {i % width for i, (a, b) in enumerate(zip(spans, ours, strict=True)) if a != b}
            assert not differing & sure, (pattern, text, spans, ours)
        compared += 1
    assert compared > COUNT // 10


def test_random_patterns_match_in_re2_as_in_python() -> None:
    chance = random.Random(12)
    texts = [*TEXTS, "\n", "a\nb", "b\ra", "é", "aéb", "c\u2028a", "a" * 12]
    rendered = 0
    for pattern, java in _understood(chance):
        for group in sorted({*range(java.compiled.groups + 1)} - java.ambiguous_groups):
            re2 = re2_pattern(pattern, group)
            if re2 is None:
                continue
            found = regexp_extract(re2, pa.array(texts), None).values.to_pylist()
            assert found == [exactly(pattern, group, text) for text in texts], (pattern, group, re2)
            rendered += 1
    assert rendered > COUNT // 10


def test_random_patterns_replace_split_and_are_found_in_re2_as_in_python() -> None:
    chance = random.Random(13)
    texts = [*TEXTS, "\n", "a\nb", "é", "aéb", "éa", "c\u2028a", "\U0001f600ab", "a" * 12, r"a\1b\\", None]
    compared = dict.fromkeys(("instr", "replace", "split"), 0)

    def assert_alike(what: str, answer: pa.Array, exact: Callable[[str], object], pattern: str) -> None:
        assert answer.to_pylist() == [None if text is None else exact(text) for text in texts], (what, pattern)
        compared[what] += 1

    column = pa.array(texts)
    for pattern, java in _understood(chance):
        re2 = re2_pattern(pattern)
        if re2 is not None:
            answer = fast_texts.regexp_instr(re2, column, None).values
            assert_alike("instr", answer, partial(patterns.regexp_instr, pattern), pattern)
        if java.may_be_empty:
            continue
        if re2 is not None and not has_start_anchor(re2):
            limit = chance.choice([-1, 1, 2, 3])
            answer = fast_texts.regexp_split(re2, limit, pa.list_(pa.string()), column, None).values
            assert_alike("split", answer, partial(patterns.regexp_split, pattern, limit), pattern)
        text = chance.choice(["<$0>", r"\\x\$", "[$1]", "$1$0$1", "", "$2$1"])
        try:
            parts = patterns.replacement_of(pattern, text)
        except UnsafePattern:
            continue
        rendered = re2_replacement(parts)
        assert (rendered is None) == (len({part for part in parts if part in (1, 2)}) > 1)
        found = None if rendered is None else re2_pattern(pattern, rendered[0])
        if rendered is not None and found is not None:
            answer = fast_texts.regexp_replace(found, rendered[1], column, None).values
            assert_alike("replace", answer, partial(patterns.regexp_replace, pattern, parts, 0), pattern)
    assert min(compared.values()) > COUNT // 20, compared


def test_patterns_anchored_at_the_start_split_with_python_only() -> None:
    assert has_start_anchor(str(re2_pattern("^a|b")))
    assert not has_start_anchor(str(re2_pattern(r"\\Aa|b")))


def test_patterns_that_may_backtrack_have_a_length_limit() -> None:
    function = partial(patterns.rlike, "(?i)a+b")
    assert patterns.limit_length(3, function, "xab") is True
    with pytest.raises(EvaluationError, match=r"text of 4 characters; the limit is 3: .*regexp\.maxLength"):
        patterns.limit_length(3, function, "xxab")


def test_like_agrees_with_re2_and_never_backtracks() -> None:
    chance = random.Random(14)
    texts = ["".join(chance.choices("ab\n", k=chance.randrange(9))) for _ in range(200)]
    for _ in range(500):
        pattern = "".join(chance.choices("ab%_", k=chance.randrange(7)))
        column = fast_texts.matches(patterns.like_to_re2(pattern, "\\"), pa.array(texts), None).values
        assert column.to_pylist() == [patterns.like(pattern, "\\", text) for text in texts], pattern
    begin_s = time.thread_time()
    assert not patterns.like("%a%a%a%a%a%a%a%b", "\\", "a" * 3_000)
    assert time.thread_time() - begin_s < 5


def test_re2_is_not_asked_where_it_may_differ_or_cannot() -> None:
    refused = ("(?i)a", "a(?=b)", "a$", r"a\Z", "(?<!a)b", r"[\D]", "(?:[a-z]{900}){900}")
    assert [pattern for pattern in refused if re2_pattern(pattern)] == []


def test_what_may_differ_is_refused() -> None:
    for pattern in UNSAFE:
        with pytest.raises(UnsafePattern):
            translate(pattern)
    for pattern in SAFE:
        assert translate(pattern).compiled
