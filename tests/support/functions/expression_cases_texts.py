"""Cases over ``relations.texts`` and ``relations.numerals``."""

# ruff: noqa: E501 - tables of texts
from __future__ import annotations

STRINGS = [
    "length(s)", "length(bin)", "char_length(s)", "octet_length(s)", "bit_length(s)", "upper(s)", "lower(s)", "trim(s)",
    "ltrim(s)", "rtrim(s)", "btrim(s)", "trim(both 'a ' from s)", "ltrim('a😀', s)", "rtrim('', s)", "trim(both p from s)",
    "substring(s, 2)", "substring(s, 0, 2)", "substring(s, -2, 1)", "substring(s, -9, 8)", "substring(s, n, 3)",
    "substring(s, 2, n)", "substring(s, n, n)", "left(s, 2)", "right(s, 2)", "right(s, n)", "concat(s, p)", "s || '-' || p",
    "concat(s)", "concat(bin, bin)", "concat_ws(',', s, p)", "concat_ws(p, s, s)", "concat_ws('-')", "concat_ws(p, s)",
    "replace(s, 'a', 'bb')", "replace(s, p, 'x')", "replace(s, '', 'x')", "replace(s, p)", "instr(s, 'b')", "instr(s, p)",
    "locate('a', s)", "locate(p, s, 2)", "locate(p, s, 0)", "position('' in s)", "locate('', s, 5)", "lpad(s, 5, 'xy')",
    "rpad(s, 5, '😀z')", "lpad(s, 4)", "rpad(s, 3, p)", "lpad(s, 7, p)", "lpad(s, -1, 'x')", "reverse(s)", "repeat(s, 3)",
    "repeat(s, -1)", "repeat(s, 0)", "ascii(s)", "translate(s, 'abX', 'AB')", "translate(s, 'aa', 'xy')", "translate(s, p, 'é')",
    "substring_index(s, '.', 1)", "substring_index(s, ',', -2)", "substring_index(s, p, 2)", "substring_index(s, p, -1)",
    "substring_index(s, 'aa', 2)", "substring_index(s, 'aa', -2)", "substring_index(s, p, 0)", "substring_index(s, p, -3)",
    "contains(s, 'a')", "contains(s, p)", "contains(s, '')", "startswith(s, p)", "startswith(s, 'a')", "endswith(s, 'c')",
    "endswith(s, p)", "s = p", "s < p", "s >= p", "s <=> p", "s in ('a', 'abc', null)", "greatest(s, p)", "least(s, p)",
    "bin = cast(p as binary)", "bin < cast(p as binary)", "coalesce(p, s)", "nullif(s, 'a')",
]  # fmt: skip
PATTERNS = [
    "s like 'a%'", "s like '%b%c'", "s like '_b_'", "s like '_'", "s like ''", "s like '%'", "s like 'a\\\\_b%'",
    "s like 'a/%b' escape '/'", "s like 'a/_b/%%' escape '/'", "s ilike 'A_C'", "s like '%a_'", "s not like 'a_%'",
    "s like '100\\\\%_'",
    "s rlike 'a+'", "s rlike '^a'", "s rlike 'a$'", "s rlike '^$'", "s rlike 'a.b'", "s rlike '.'", "s rlike '^[a-c]+$'",
    "s rlike '[^a-z,]'", "s rlike 'a{2,3}'", "s rlike '(a|b),'", "s rlike r'\\.'", "s rlike r'^\\w+$'", "s rlike r'\\s'",
    "s rlike r'\\d{3}%?'", "s rlike 'é|日'", "s rlike '^..$'", "s rlike ''", "s rlike '[^é]$'", "s rlike r'\\S.\\S'",
    "regexp_extract(s, '(a)(.)', 2)", "regexp_extract(s, '([a-z]+),([a-z]*)', 1)", "regexp_extract(s, 'b|(c)', 1)",
    "regexp_extract(s, r'\\w+', 0)", "regexp_extract(s, 'a*?b', 0)", "regexp_replace(s, 'a', 'xy')",
    "regexp_replace(s, 'b+', '-')", "regexp_replace(s, '[^a-z]', '')", "regexp_replace(s, 'b$', '!')",
    "regexp_replace(s, '(a|,)', '😀')", "regexp_replace(s, '^[a😀]', '>')", "regexp_replace(s, r'\\s+', ' ')",
]  # fmt: skip
OTHERS = [
    "split(s, ',')", "split(s, ',', 2)", "split(s, r'\\.')", "split(s, 'aa')", "split(s, 'X', 1)", "split(s, ',', 0)",
    "split(s, ',')[0]", "split(s, ',')[1]", "split(s, ',')[n]", "get(split(s, ','), 1)", "size(split(s, ','))",
    "if(size(split(s, ',')) > 1, split(s, ',')[1], s)", "md5(s)", "sha2(s, 256)", "sha2(s, 0)", "sha2(s, 512)", "sha2(s, n)",
    "hex(s)", "hex(bin)", "unhex(s)", "unhex(hex(s))", "conv(s, 36, 10)", "conv(s, 16, -10)", "conv(p, 11, 2)", "conv(s, n, 7)",
    "conv('18446744073709551615', 10, 16)", "conv(concat('-', s, 'fffffffffffffffff'), 16, -10)", "conv('-9223372036854775809', 10, 10)",
    "conv(concat('1', s), 36, 36)", "sha1(s)", "sha1(bin)", "crc32(s)", "crc32(bin)", "hash(s)", "hash(bin, n, p)", "xxhash64(s)", "xxhash64(s, n, p)", "cast(s as binary)", "cast(bin as string)",
    "try_cast(bin as string)", "upper(cast(bin as string))",
]  # fmt: skip

TYPES = (
    "tinyint", "smallint", "int", "bigint", "float", "double", "boolean", "decimal(5,2)", "decimal(38,0)", "decimal(20,10)",
)  # fmt: skip
NUMERALS = [f"{cast}(s as {name})" for name in TYPES for cast in ("cast", "try_cast")]
NUMERALS += [
    "s + 1",
    "s = 12",
    "case when s rlike '^[0-9]$' then cast(s as int) end",
    "coalesce(try_cast(s as int), -1)",
]
LETTERS = ["upper(s)", "lower(s)"]
