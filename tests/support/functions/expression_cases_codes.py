"""Cases over ``codes`` and ``relations.texts``."""

# ruff: noqa: E501 - tables of texts
from __future__ import annotations

CHARSETS = ("UTF-8", "US-ASCII", "iso-8859-1", "UTF-16", "UTF-16BE", "UTF-16LE", "UTF-32")

CODES = [
    "bitmap_count(b)", "bitmap_bit_position(l)", "bitmap_bucket_number(l)", "bitmap_bit_position(n)", "bitmap_bucket_number(n)",
    "base64(b)", "base64(s)", "unbase64(s)", "hex(s)", "hex(b)", "hex(l)", "hex(n)", "unhex(s)", "to_binary(s, 'hex')",
    "try_to_binary(s, 'hex')", "url_encode(s)", "url_decode(s)", "try_url_decode(s)", "sha1(s)", "sha(b)", "crc32(b)", "crc32(s)",
    "luhn_check(s)", "soundex(s)", "initcap(s)", "quote(s)", "is_valid_utf8(s)", "make_valid_utf8(s)", "validate_utf8(s)",
    "try_validate_utf8(s)", "chr(l)", "char(n)", "space(if(n < 1000, n, 1))", "find_in_set(s, q)", "find_in_set('2', s)",
    "find_in_set('', s)", "levenshtein(s, q)", "levenshtein(s, q, 5)", "levenshtein(s, q, n)", "levenshtein(s, '')",
    "overlay(s placing q from 2)", "overlay(s placing 'xy' from n)", "overlay(s placing '' from 2 for n)",
    "overlay(s placing q from n for 3)", "overlay(b placing c from 2)", "overlay(b placing c from n for 1)",
    "overlay(b placing c from n)", "elt(n, s, q)", "elt(2, s, q)", "elt(n, b, c)", "elt(n, cast(s as int), 1, 2)",
    "startswith(b, c)", "endswith(b, c)", "contains(b, c)", "contains(b, X'')", "substring(b, 2)", "substring(b, n, 2)",
    "substring(b, n)", "substring(b, -2, n)", "substring(b, n, n)", "left(b, 2)", "lpad(b, 5, c)", "rpad(b, 5, c)",
    "lpad(b, if(n < 1000, n, 3), c)", "rpad(b, 4)", "lpad(b, 0, c)", "reverse(b)", "octet_length(b)", "b || c",
    "format_string('%s|%10s|%-8.3s|%S', s, q, s, s)", "format_string('%d %,d %+d %05d %(d %-6d|% d', n, l, n, n, l, n, n)",
    "format_string('%x %X %o %016x', l, n, n, l)", "format_string('%b %B %%%n', n = 1, s)", "printf('%2$s %1$s', s, n)",
    "format_string('plain')", "format_string('')", "format_string('%s %s', l, d)", "format_string('%5s|%s', n > 0, null)",
    "format_string('%f %.0f %.2f', d, d, d)", "format_string('%,.3f %012.1f %+.1f %(.1f %-9.2f|', d, d, d, d, d)",
    "format_number(d, 2)", "format_number(d, 0)", "format_number(d, n % 12)", "format_number(l, 0)", "format_number(l, 3)",
    "format_number(n, -1)", "format_number(cast(n as decimal(20,4)) * 0.125, 2)", "format_number(cast(d as float), 3)",
]  # fmt: skip
CODES += [
    f"{function}({column}, '{name}')" for name in CHARSETS for function, column in (("encode", "s"), ("decode", "b"))
]
CSV_OF_TEXTS = [
    "to_csv(named_struct('a', s, 'b', p))", "to_csv(named_struct('b', n, 'a', s))", "to_csv(from_json(s, 'x int, y int'))",
    "to_csv(named_struct('a', p, 'b', concat(p, s), 'c', concat(s, p)), map('sep', '|', 'nullValue', 'NULL'))",
    "to_csv(named_struct('a', '#', 'b', concat(s, '\\\\', p)), map('delimiter', ';'))",
    "to_csv(named_struct('a', concat(p, '\\\\\"', s), 'b', concat(',\\\\', s)))",
    "to_csv(named_struct('a', p, 'b', s), map('nullValue', '#,'))",
]  # fmt: skip
CSV_OF_FIELDS = [
    "to_csv(named_struct('a', s, 'b', p))", "to_csv(named_struct('a', p, 'b', s), map('sep', '|'))",
    "to_csv(named_struct('a', s, 'b', p, 'c', s), map('nullValue', ' x, '))",
    "to_csv(named_struct('a', s, 'b', p), map('sep', '\\t'))",
    "to_csv(named_struct('a', s, 'b', p, 'c', s), map('sep', 'a', 'nullValue', 'N'))",
]  # fmt: skip
CSV_OF_NUMBERS = [
    "to_csv(named_struct('a', x_i8, 'b', x_i64, 'c', x_f32, 'd', y_f64, 'e', x_b, 'f', x_dec, 'g', y_big))",
]
CSV_OF_TIMES = [
    "to_csv(named_struct('ts', ts, 'ntz', ntz, 'dt', dt))",
    "to_csv(named_struct('dt', dt, 'ts', ts), map('timestampFormat', 'dd/MM/yyyy HH:mm', 'dateFormat', 'yy-D'))",
    "to_csv(named_struct('n', n, 'ts', ts), map('timeZone', 'Asia/Tokyo'))",
]
TEXTS = [
    "split_part(s, ',', 2)", "split_part(s, p, n)", "split_part(s, p, 1)", "split_part(s, 'aa', -1)", "split_part(s, '', n)",
    "split_part(s, '.', 4)",
    "initcap(s)", "soundex(s)", "levenshtein(s, p)", "levenshtein(p, s, 3)", "hex(s)", "base64(bin)", "url_encode(s)",
    "overlay(s placing p from n)", "overlay(s placing p from 2 for n)", "find_in_set(p, s)", "elt(n, s, p)", "quote(s)",
    "format_string('%s-%5.2s', s, p)", "substring(bin, n, 3)", "encode(s, 'UTF-16')", "crc32(bin)", "sha1(bin)",
]  # fmt: skip

PARTS = ("HOST", "PATH", "QUERY", "REF", "PROTOCOL", "FILE", "AUTHORITY", "USERINFO", "host")
URLS = [f"try_parse_url(s, '{part}')" for part in PARTS]
URLS += ["try_parse_url(s, 'QUERY', 'k')", "try_parse_url(s, 'QUERY', 'a|k')", "try_parse_url(s, 'PATH', 'k')"]
URLS += ["parse_url(s, 'HOST')", "case when s like 'http://%.%/%' then parse_url(s, 'QUERY', 'k') end"]
URLS += ["url_decode(url_encode(s))"]
