"""``like``, regular expressions and ``split``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pyarrow as pa

from penstock.catalyst.trees import JavaTree, arrow_type, elements, kind
from penstock.functions import Expression, Literal
from penstock.functions.core.fast_path import ColumnFunction, FastPath, column_fast_path
from penstock.functions.core.strict import ScalarFunction
from penstock.functions.patterns import patterns
from penstock.functions.patterns.java_patterns import JavaPattern, UnsafePattern, translate
from penstock.functions.patterns.re2_patterns import has_start_anchor, re2_pattern, re2_replacement
from penstock.functions.plan_registry import Translation, catalyst, constant, refuse
from penstock.functions.text import fast_texts

AREA = "Patterns"
SAFE = (
    "constant patterns of characters, classes, `.`, `^`, `$`, alternatives, groups (also named), quantifiers, looking "
    "ahead and behind, `(?i)` and `(?s)` in front; not `\\b`, `\\p{L}`, back references, possessive quantifiers; no "
    "loops around what may be empty"
)
FULL = SAFE + "; not where the empty text may match"


def pattern_of(tree: JavaTree, expression: Expression) -> str | None:
    """Return a constant pattern; None for null.

    A pattern that is not constant is refused, because its safety cannot be checked per row.
    """
    if not isinstance(expression, Literal):
        refuse(tree, "the pattern must be a constant")
    value = expression.scalar.as_py()
    return None if value is None else str(value)


@catalyst("Like", area=AREA, forms="`like`, with `escape`")
def like(tree: JavaTree, translation: Translation) -> Expression:
    text, pattern = translation.children(tree)
    escape = str(tree.escapeChar())
    if not isinstance(pattern, Literal) or not pattern.scalar.is_valid:
        return ScalarFunction(partial(patterns.like_each, escape), (text, pattern), pa.bool_(), bool(tree.nullable()))
    try:
        patterns.like_to_python(str(constant(pattern)), escape)
    except UnsafePattern as error:
        refuse(tree, str(error))
    function = partial(patterns.like, str(constant(pattern)), escape)
    fast_path = column_fast_path(fast_texts.matches, patterns.like_to_re2(str(constant(pattern)), escape))
    return ScalarFunction(function, (text,), pa.bool_(), bool(tree.nullable()), fast_path)


_MANY = {"LikeAll": (True, False), "LikeAny": (False, False), "NotLikeAll": (True, True), "NotLikeAny": (False, True)}


@catalyst(*_MANY, area=AREA, forms="`like all`, `like any`, and their opposites")
def like_many(tree: JavaTree, translation: Translation) -> Expression:
    given = elements(tree.patterns())
    texts = tuple(str(pattern.toString()) for pattern in given if pattern is not None)
    for text in texts:
        try:
            patterns.like_to_python(text, "\\")
        except UnsafePattern as error:
            refuse(tree, str(error))
    function = partial(patterns.like_many, texts, len(texts) < len(given), *_MANY[kind(tree)])
    return ScalarFunction(function, (translation(tree.child()),), pa.bool_())


def safe_pattern(tree: JavaTree, expression: Expression, full: bool = False) -> str | None:
    """Return a regular expression with the same meaning in Java and Python; None for null.

    With ``full``, repeated matches must agree too, so that a pattern that may match the empty text is refused.
    """
    pattern = pattern_of(tree, expression)
    if pattern is None:
        return None
    java = java_pattern(tree, pattern)
    if full and java.may_be_empty:
        refuse(tree, "the pattern may match the empty text, where Java splits characters beyond U+FFFF")
    return pattern


def java_pattern(tree: JavaTree, pattern: str) -> JavaPattern:
    try:
        return translate(pattern)
    except UnsafePattern as error:
        refuse(tree, f"the pattern may mean something else outside Java, from {error} on; use a pandas_udf")


def _group(tree: JavaTree, pattern: str, expression: Expression) -> int:
    group, java = constant(expression), translate(pattern)
    if not isinstance(group, int) or not 0 <= group <= java.compiled.groups:
        refuse(tree, "the group must be a constant and exist")
    if group in java.ambiguous_groups:
        refuse(tree, "what a repeated group captures may differ; put another group around the repetition")
    return group


def _length_limited(translation: Translation, function: Callable[[str], object]) -> Callable[[str], object]:
    """Limit the text length of a function with a user's pattern, because Python's engine backtracks."""
    return partial(patterns.limit_length, translation.conf.regexp_max_length, function)


def _by_re2(function: ColumnFunction, pattern: str, group: int = 0) -> FastPath | None:
    text = re2_pattern(pattern, group)
    return None if text is None else column_fast_path(partial(function, text))


@catalyst("RLike", area=AREA, forms="`rlike`, `regexp_like`", limits=SAFE)
def rlike(tree: JavaTree, translation: Translation) -> Expression:
    text, expression = translation.children(tree)
    pattern = safe_pattern(tree, expression)
    if pattern is None:
        return Literal(None, pa.bool_())
    fast_path = _by_re2(fast_texts.matches, pattern)
    return ScalarFunction(
        _length_limited(translation, partial(patterns.rlike, pattern)),
        (text,),
        pa.bool_(),
        bool(tree.nullable()),
        fast_path,
    )


@catalyst("RegExpExtract", area=AREA, forms="`regexp_extract`, `regexp_substr`", limits=SAFE)
def regexp_extract(tree: JavaTree, translation: Translation) -> Expression:
    text, expression, group = translation.children(tree)
    pattern = safe_pattern(tree, expression)
    if pattern is None:
        return Literal(None, pa.string())
    number = _group(tree, pattern, group)
    fast_path = _by_re2(fast_texts.regexp_extract, pattern, number)
    function = _length_limited(translation, partial(patterns.regexp_extract, pattern, number))
    return ScalarFunction(function, (text,), pa.string(), bool(tree.nullable()), fast_path)


@catalyst("RegExpExtractAll", area=AREA, forms="`regexp_extract_all`, `regexp_count`", limits=FULL)
def regexp_extract_all(tree: JavaTree, translation: Translation) -> Expression:
    text, expression, group = translation.children(tree)
    pattern = safe_pattern(tree, expression, full=True)
    if pattern is None:
        return Literal(None, arrow_type(tree))
    function = _length_limited(translation, partial(patterns.regexp_extract_all, pattern, _group(tree, pattern, group)))
    return ScalarFunction(function, (text,), arrow_type(tree), bool(tree.nullable()))


@catalyst("RegExpInStr", area=AREA, forms="`regexp_instr`", limits=SAFE)
def regexp_instr(tree: JavaTree, translation: Translation) -> Expression:
    text, expression, group = translation.children(tree)
    pattern = safe_pattern(tree, expression)
    if pattern is None:
        return Literal(None, pa.int32())
    _group(tree, pattern, group)
    fast_path = _by_re2(fast_texts.regexp_instr, pattern)
    function = _length_limited(translation, partial(patterns.regexp_instr, pattern))
    return ScalarFunction(function, (text,), pa.int32(), bool(tree.nullable()), fast_path)


@catalyst("RegExpReplace", area=AREA, forms="`regexp_replace`",
          limits=FULL + "; the replacement and the position are constants")  # fmt: skip
def regexp_replace(tree: JavaTree, translation: Translation) -> Expression:
    text, expression, replacement, position = translation.children(tree)
    pattern, start = safe_pattern(tree, expression, full=True), constant(position)
    if not isinstance(replacement, Literal) or not isinstance(start, int) or start < 1:
        refuse(tree, "the replacement and the position must be constants, and the position positive")
    if pattern is None or not replacement.scalar.is_valid:
        return Literal(None, pa.string())
    try:
        parts = patterns.replacement_of(pattern, str(constant(replacement)))
    except UnsafePattern as error:
        refuse(tree, str(error))
    fast_path = None
    if start == 1 and (found := re2_replacement(parts)) and (re2 := re2_pattern(pattern, found[0])):
        fast_path = column_fast_path(fast_texts.regexp_replace, re2, found[1])
    function = _length_limited(translation, partial(patterns.regexp_replace, pattern, parts, start - 1))
    return ScalarFunction(function, (text,), pa.string(), bool(tree.nullable()), fast_path)


@catalyst(
    "StringSplit", area=AREA, forms="`split`", limits=FULL + ", unless it is empty itself; the limit is a constant"
)
def split(tree: JavaTree, translation: Translation) -> Expression:
    text, expression, limit = translation.children(tree)
    pattern, count = pattern_of(tree, expression), constant(limit)
    if not isinstance(count, int):
        refuse(tree, "the limit must be a constant")
    if pattern is None:
        return Literal(None, arrow_type(tree))
    fast_path = None
    function: Callable[[str], object]
    if not pattern:
        function = partial(patterns.split_characters, count)
    elif separator := patterns.literal_of(pattern):
        function = partial(patterns.split, separator, count)
        fast_path = column_fast_path(fast_texts.split, separator, count, arrow_type(tree))
    else:
        safe = str(safe_pattern(tree, expression, full=True))
        function = _length_limited(translation, partial(patterns.regexp_split, safe, count))
        if (re2 := re2_pattern(safe)) and not has_start_anchor(re2):
            fast_path = column_fast_path(fast_texts.regexp_split, re2, count, arrow_type(tree))
    return ScalarFunction(function, (text,), arrow_type(tree), bool(tree.nullable()), fast_path)
