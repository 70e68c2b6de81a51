"""JSON as Jackson's generator writes it."""

from __future__ import annotations

import re

from penstock.functions.casts.java_digits import double_text
from penstock.functions.json.tokens import JsonError, JsonReader, Token

_ESCAPED = re.compile(r'["\\\x00-\x1f]')
_ESCAPED_BYTES = re.compile(r'["\\\x00-\x1f\ud800-\udfff\U00010000-\U0010ffff]')
_SURROGATE = re.compile("[\ud800-\udfff]")
_SHORT = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
_LITERALS = (Token.TRUE, Token.FALSE, Token.NULL)
_OPENED = {Token.START_ARRAY: ("[", Token.END_ARRAY, "]"), Token.START_OBJECT: ("{", Token.END_OBJECT, "}")}
_NON_NUMERIC = {
    "NaN": '"NaN"', "Infinity": '"Infinity"', "+INF": '"Infinity"', "+Infinity": '"Infinity"', "-INF": '"-Infinity"',
    "-Infinity": '"-Infinity"', "inf": '"Infinity"', "-inf": '"-Infinity"', "nan": '"NaN"',
}  # fmt: skip


def quoted(text: str, to_bytes: bool = False) -> str:
    """Return a string in quotes.

    A generator of bytes (``to_bytes``) also escapes characters of two UTF-16 units.
    """
    return f'"{(_ESCAPED_BYTES if to_bytes else _ESCAPED).sub(_escape, text)}"'


def _escape(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be", "surrogatepass")
    return _SHORT.get(match[0]) or "".join(f"\\u{units[i]:02X}{units[i + 1]:02X}" for i in range(0, len(units), 2))


def require_utf8(text: str) -> str:
    """Return the text unchanged.

    Raises:
        JsonError: the text has lone surrogates, which UTF-8 cannot encode.
    """
    if _SURROGATE.search(text):
        raise JsonError("a lone surrogate")
    return text


def java_text(text: str) -> str:
    """Return a string as Java encodes it in UTF-8: lone surrogates become question marks."""
    return _SURROGATE.sub("?", text)


def number_text(value: float) -> str:
    """Return the text of a double, in quotes for NaN and the infinities."""
    return _NON_NUMERIC.get(repr(value)) or double_text(value)


def copy_structure(reader: JsonReader, to_bytes: bool = True) -> str:
    """Return the current value of the reader as text, like Jackson's ``copyCurrentStructure``.

    The reader then is at the last token of the value.

    Raises:
        JsonError: the value is not JSON, or there is no value.
    """
    out: list[str] = []
    # No recursion: Jackson allows 1,000 scopes, more than Python's stack.
    open_scopes: list[tuple[Token, str]] = []
    while True:
        token = reader.token
        if token is Token.NAME:
            out.append(f"{quoted(str(reader.name), to_bytes)}:")
            reader.next_token()
            continue
        opened = _OPENED.get(token) if token is not None else None
        if opened is not None:
            out.append(opened[0])
            open_scopes.append(opened[1:])
        elif open_scopes and token is open_scopes[-1][0]:
            out.append(open_scopes.pop()[1])
        else:
            out.append(_scalar(reader, token, to_bytes))
        if not open_scopes:
            return "".join(out)
        if reader.next_token() is not open_scopes[-1][0] and opened is None:
            out.append(",")


def _scalar(reader: JsonReader, token: Token | None, to_bytes: bool) -> str:
    if token is Token.STRING:
        return quoted(reader.text(), to_bytes)
    if token is Token.INTEGER:
        return str(int(reader.text()))
    if token is Token.FLOAT:
        text = reader.text()
        return _NON_NUMERIC.get(text) or number_text(float(text))
    if token is None or token not in _LITERALS:
        raise JsonError("no value")
    return str(token.value)
