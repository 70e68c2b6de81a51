"""Cases of regular expressions over ``relations.texts``."""

from __future__ import annotations

from penstock.functions.patterns.java_patterns import translate

SAFE = [
    "a+b*", "(a|b)+", "(?:ab)+", "(?i)ABC", "(?i)[a-c]+X", "(?is)a.b", "(?s)a.b", "a(?=b)", "b(?!c)", "(?<=a)b",
    "(?<!a)b", r"[\w.]+", r"[^\s,]+", r"\p{Alpha}+", r"\P{Alnum}", r"[\p{Punct}é]", r"\x61\u0062", r"\Qa.b\E",
    r"\A\w+\z", r"a\Z", "[a-]", "[-a]", "[^-a]", "[a&|~^]+", r"[\t\n ]", r"\t|\n", r"\h+|\v", "(?<x>a)(b)?",
    r"(\w)(\w)?", r"[\D]+", r"[^\W_]+", r"(\w+),(\w*)", ".{2}", "a{1,2}?b", r"\x{1F600}", "[😀é]", "[^😀]", "日|本",
    "(?:a|ab)c", "(a|ab)(c|bcd)?", "x?", "b*?c", "(?i)ſ|k", "$", "^", r"\d+(?:\.\d+)?", r"[.,;:]\s?", r"^\s*(\S+)",
    r"(?:\r\n|[\n\r])", r".\Z", r"(?!a)\w", "(?i)[^A]", r"[\x00-\x1f]",
]  # fmt: skip
UNSAFE = [
    "[[:alpha:]]", "a++", "(a*)*", r"\bfoo", r"(a)\1", r"\p{L}", "[a&&b]", "(?m)^a", "[]a]", "(?x)a b", r"\R", "^*",
    "a**", "(a", "a)", "[z-a]", "a{2,1}", "(?<=a+)b", "[a-c-e]", r"[\w-z]",
]  # fmt: skip


def _quoted(pattern: str) -> str:
    return "r'" + pattern + "'"


PATTERNS = [f"regexp_extract(s, {_quoted(pattern)}, 0)" for pattern in SAFE]
PATTERNS += [f"regexp_instr(s, {_quoted(pattern)})" for pattern in SAFE[::3]]
PATTERNS += [f"s rlike {_quoted(pattern)}" for pattern in SAFE[1::3]]
for number, pattern in enumerate(pattern for pattern in SAFE if not translate(pattern).may_be_empty):
    PATTERNS.append(f"split(s, {_quoted(pattern)}, {number % 4 - 1})")
    PATTERNS.append(f"regexp_replace(s, {_quoted(pattern)}, '<$0>', {number % 3 + 1})")
    PATTERNS += [f"regexp_extract_all(s, {_quoted(pattern)}, 0)"] if number % 2 else []
PATTERNS += [
    "regexp_count(s, '[a-c]')", "regexp_replace(s, r'(?<x>\\w)(b)?', r'\\$1${x}$2')",
    "regexp_replace(s, r'(\\w)(,)', r'$2$1$10')", "regexp_extract(s, r'(\\w)(\\w)?', 2)",
    "regexp_extract_all(s, r'(a|b)(c)?', 2)", "regexp_replace(s, 'a', null)", "s rlike null",
    "split(s, '')", "split(s, '', 2)", "split(s, '', 0)", "split(s, '', 100)", "s like p", "p like s",
    "s not like concat(p, '%')", "s like all ('a%', '%c')", "s like any ('%b_', 'x%', null)",
    "s not like all ('a%', null)", "s not like any ('a%', '%,%')", "s like all ('%a%', null, '%b%')",
    "s not like any ('a%', null)",
]  # fmt: skip
PATTERNS += [f"s {test} ('%a_%', '_b%', 'a_b%c')" for test in ("like all", "like any", "not like all", "not like any")]
PATTERNS += [f"s {test} ('%_', null, '_b%')" for test in ("like all", "like any", "not like all", "not like any")]
