"""Encodings of texts and bytes: base64, base32, hexadecimal, character sets, URLs."""

from __future__ import annotations

import base64
import re
import unicodedata
from urllib.parse import quote_plus

from penstock.errors import EvaluationError
from penstock.functions.text.java_utf8 import decode_as_java

_LINE = 76
_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_VALUES = {character: value for value, character in enumerate(_ALPHABET)}
_BASE32 = {letter: i for i, digit in enumerate("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") for letter in (digit, digit.lower())}
_LEFT_OVER = {0: (0, 0), 1: (1, 2), 2: (1, 2), 3: (1, 7), 4: (2, 4), 5: (3, 1), 6: (3, 6), 7: (4, 3)}
"""Number of digits in an incomplete group -> number of bytes in them, number of unused bits."""
_CODECS = {
    "US-ASCII": "ascii", "ISO-8859-1": "latin-1", "UTF-8": "utf-8", "UTF-16BE": "utf-16-be", "UTF-16LE": "utf-16-le",
    "UTF-16": "utf-16", "UTF-32": "utf-32",
}  # fmt: skip
CHARSETS = tuple(_CODECS)
"""Character sets that Spark supports."""

_MARKS = {
    "UTF-16": ((b"\xfe\xff", "utf-16-be"), (b"\xff\xfe", "utf-16-le")),
    "UTF-32": ((b"\0\0\xfe\xff", "utf-32-be"), (b"\xff\xfe\0\0", "utf-32-le")),
}
_ESCAPES = re.compile("(?:%..)+", re.DOTALL)
_SIGNED_HEX = re.compile(r"[+-]?[0-9a-fA-F]+")


def base64_text(chunked: bool, data: bytes) -> str:
    """Encode in Base64, in lines of 76 characters like MIME if ``chunked``."""
    text = base64.b64encode(data).decode()
    return "\r\n".join(text[i : i + _LINE] for i in range(0, len(text), _LINE)) if chunked else text


def base64_bytes(text: str) -> bytes:
    """Decode Base64 like Java's MIME decoder, which skips characters outside the alphabet.

    Raises:
        EvaluationError: the text ends with an incomplete byte or with wrong padding. Spark raises Java's own exception.
    """
    known = [character for character in text if character in _VALUES or character == "="]
    padding_index = known.index("=") if "=" in known else len(known)
    digits, rest = known[:padding_index], text[text.index("=") + 1 :] if padding_index < len(known) else ""
    left = len(digits) % 4
    if padding_index < len(known):
        if left == 0 or (left == 2 and not rest.startswith("=")):
            raise EvaluationError("Input byte array has wrong 4-byte ending unit")
        rest = rest[1:] if left == 2 else rest
    if left == 1:
        raise EvaluationError("Last unit does not have enough valid bits")
    if any(character in _VALUES for character in rest):
        raise EvaluationError("Input byte array has incorrect ending byte")
    bits = 0
    for digit in digits:
        bits = bits << 6 | _VALUES[digit]
    spare = len(digits) * 6 % 8
    return (bits >> spare).to_bytes(len(digits) * 6 // 8, "big")


def base32_text(data: bytes) -> str:
    return base64.b32encode(data).decode()


def base32_bytes(text: str) -> bytes:
    """Decode Base32 like Apache Commons Codec.

    It reads up to the first ``=``, accepts both cases, and skips characters outside the alphabet. An incomplete last
    group gives its complete bytes. A single last digit also gives a byte, whose other bits are those of the digit
    before.
    """
    digits = [_BASE32[character] for character in text.partition("=")[0] if character in _BASE32]
    bits = 0
    for digit in digits:
        bits = bits << 5 | digit
    whole, left = divmod(len(digits), 8)
    count, spare = _LEFT_OVER[left]
    end = (bits >> spare) & ((1 << 8 * count) - 1)
    return (bits >> 5 * left).to_bytes(5 * whole, "big") + end.to_bytes(count, "big")


def hex_of_bytes(data: bytes) -> str:
    return data.hex().upper()


def hex_of_text(text: str) -> str:
    return text.encode().hex().upper()


def hex_of_integer(value: int) -> str:
    return f"{value % 2**64:X}"


def unhex(text: str) -> bytes | None:
    """Decode hexadecimal digits; None if there is another character.

    If the number of digits is odd, the first digit is a byte of its own.
    """
    if not re.fullmatch("[0-9a-fA-F]*", text):
        return None
    return bytes.fromhex(text if len(text) % 2 == 0 else "0" + text)


def encode(charset: str, text: str) -> bytes:
    """Encode like Java's encoders: UTF-16 with a byte order mark, UTF-32 without one.

    Raises:
        EvaluationError: the character set lacks a character.
    """
    codec = {"UTF-16": "utf-16-be", "UTF-32": "utf-32-be"}.get(charset, _CODECS[charset])
    try:
        data = text.encode(codec)
    except UnicodeEncodeError:
        raise _malformed(charset) from None
    return b"\xfe\xff" + data if charset == "UTF-16" and data else data


def decode(charset: str, data: bytes) -> str:
    """Decode like Java's decoders. UTF-16 and UTF-32 without a byte order mark are big-endian.

    Raises:
        EvaluationError: the bytes are not valid in the character set.
    """
    codec = {"UTF-16": "utf-16-be", "UTF-32": "utf-32-be"}.get(charset, _CODECS[charset])
    for mark, marked in _MARKS.get(charset, ()):
        if data.startswith(mark):
            data, codec = data[len(mark) :], marked
            break
    try:
        return data.decode(codec)
    except UnicodeDecodeError:
        raise _malformed(charset) from None


def _malformed(charset: str) -> EvaluationError:
    return EvaluationError(
        f"[MALFORMED_CHARACTER_CODING] Invalid value found when performing `encode` or `decode` with {charset}"
    )


def url_encode(text: str) -> str:
    """Encode as ``application/x-www-form-urlencoded``."""
    return quote_plus(text, safe="*").replace("~", "%7E")


def url_decode(text: str) -> str | None:
    """Decode a URL; None if a percent sign is not followed by a valid byte."""
    out: list[str] = []
    position = 0
    for match in _ESCAPES.finditer(text):
        data = [_byte(match[0][i + 1 : i + 3]) for i in range(0, len(match[0]), 3)]
        if None in data:
            return None
        out.append(text[position : match.start()].replace("+", " "))
        out.append(decode_as_java(bytes(value for value in data if value is not None)))
        position = match.end()
    rest = text[position:]
    return None if "%" in rest else "".join(out) + rest.replace("+", " ")


def _byte(digits: str) -> int | None:
    """Parse two characters like ``Integer.parseInt(digits, 16)``; None if they are not a number of at least zero.

    They may be a sign and a digit, and digits of any script.
    """
    plain = "".join(str(unicodedata.decimal(c, c)) for c in digits if ord(c) <= 0xFFFF)
    if len(plain) != 2 or not _SIGNED_HEX.fullmatch(plain):
        return None
    value = int(plain, 16)
    return value if value >= 0 else None
