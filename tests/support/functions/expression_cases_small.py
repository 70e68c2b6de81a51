"""Cases over several relations: functions that stand alone."""

# ruff: noqa: E501 - tables of texts
from __future__ import annotations

TEXTS = [
    "concat_ws('-', array(s, p, null), s)", "concat_ws(p, array(s, p), array())", "concat_ws(',', split(s, ','), p)",
    "concat_ws(null, array(s))", "concat_ws('', if(n > 0, array(s, p), null))", "concat_ws('é', array(null, null), p, array(s))",
    "locate(p, s, n)", "locate('a', s, n)", "position(p, s, n)", "locate('', s, n)", "locate(p, s, cast(null as int))",
    "mask(s)", "mask(s, 'Q', null, '9', '*')", "mask(s, null, 'q', null, '😀')", "mask(s, '😀', 'b', 'n', 'é')",
    "jaro_winkler_similarity(s, p)", "jaro_winkler_similarity(p, s)", "jaro_winkler_similarity(s, concat(p, s))",
    "hmac('key', s, 'sha512')", "hmac('k', bin, 'SHA224')",
    "hmac('k', s, 'sha-384')", "to_base32(bin)", "from_base32(s)", "from_base32(to_base32(bin))", "bitmap_count(bin)",
]  # fmt: skip
CODES = [
    "from_base32(s)", "from_base32(upper(s))", "from_base32(translate(s, '01', 'AB='))", "to_base32(b)",
    "jaro_winkler_similarity(s, q)", "mask(s)", "mask(q, 'X', 'x', 'n', '-')",

]  # fmt: skip
NUMBERS = [
    "bitmap_bucket_number(x_i64)", "bitmap_bit_position(x_i64)", "bitmap_bit_position(x_i32)", "x_f64 + e()", "e()", "pi()",
    "bitmap_bucket_number(x_i16)", "bitmap_bucket_number(x_i64 - y_i32)",
]  # fmt: skip
RAISING = [
    "hmac('k', s)", "hmac(p, s)", "hmac(s, p, 'MD5')", "hmac(bin, s, 'SHA-1')", "raise_error(s)", "assert_true(n > 0)",
    "assert_true(n > 0, s)", "if(n > 1, raise_error('too many'), n)", "coalesce(s, raise_error('no text'))",
]  # fmt: skip
