"""Parser for URIs by the grammar of ``java.net.URI`` (RFC 2396 with deviations), for ``parse_url``."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

from penstock.functions.core import failures
from penstock.functions.patterns.java_patterns import translate

_HEX = "%[0-9A-Fa-f]{2}"
_UNRESERVED = r"A-Za-z0-9_\-!.~'()*"
_URIC = rf"{_UNRESERVED};/?:@&=+$,\[\]"
_PATH = rf"{_UNRESERVED};/:@&=+$,"
_USER = rf"{_UNRESERVED};:&=+$,"
_REGISTERED = rf"{_UNRESERVED};:@&=+$,"
_SERVER = rf"{_USER}A-Za-z0-9\-.:@\[\]"
# A pattern with a percent sign in its class has no alternative for escaped bytes, which could then match in two ways.
_SERVER_ALONE = re.compile(rf"(?:[{_SERVER}]|[^\x00-\x7f]|{_HEX})*+")
_SERVER_WITH_PERCENT = re.compile(rf"(?:[{_SERVER}%]|[^\x00-\x7f])*+")
_LABEL = "(?:[A-Za-z0-9]|[A-Za-z0-9][A-Za-z0-9-]*[A-Za-z0-9])"
_TOP_LABEL = "(?:[A-Za-z]|[A-Za-z][A-Za-z0-9-]*[A-Za-z0-9])"
_HOST_NAME = re.compile(rf"(?:{_LABEL}|(?:{_LABEL}\.)+{_TOP_LABEL})\.?")
_BYTE = "(?:25[0-5]|2[0-4][0-9]|[01]?[0-9]?[0-9])"
_FOUR_BYTES = re.compile(rf"{_BYTE}(?:\.{_BYTE}){{3}}")
_HEXTETS = re.compile("[0-9A-Fa-f]{1,4}")
_PORT_MAX = 2**31 - 1


class NotUri(ValueError):
    """The text is not a URI for Java."""


@dataclass(frozen=True)
class Uri:
    """Parts of a URI, as written in the text; None for a part that is missing."""

    scheme: str | None
    authority: str | None
    user: str | None
    host: str | None
    path: str | None
    query: str | None
    fragment: str | None


def _is_of(text: str, characters: str) -> bool:
    """Return True if the text has only these characters, escaped bytes, and non-ASCII characters.

    Non-ASCII control and space characters are not allowed.
    """
    match = re.fullmatch(rf"(?:[{characters}]|{_HEX}|[^\x00-\x7f])*+", text)
    return match is not None and all(
        unicodedata.category(c) not in ("Cc", "Zs", "Zl", "Zp") for c in text if not c.isascii()
    )


def _require(text: str, characters: str) -> str:
    if not _is_of(text, characters):
        raise NotUri(text)
    return text


def uri_of(text: str) -> Uri:
    """Return the parts of a URI.

    Raises:
        NotUri: the text is not a URI.
    """
    before, mark, fragment = text.partition("#")
    found = _require(fragment, _URIC) if mark else None
    scheme, rest = _scheme(before)
    if scheme is not None and not rest.startswith("/"):
        if not rest:
            raise NotUri(text)
        _require(rest, _URIC)
        return Uri(scheme, None, None, None, None, None, found)
    authority = user = host = None
    if rest.startswith("//"):
        end = min(index for index in (rest.find("/", 2), rest.find("?", 2), len(rest)) if index >= 0)
        if end > 2:
            authority = rest[2:end]
            user, host = _authority(authority)
        elif end == len(rest) and not mark:
            raise NotUri(text)
        rest = rest[end:]
    path, question, query = rest.partition("?")
    _require(path, _PATH)
    return Uri(scheme, authority, user, host, path, _require(query, _URIC) if question else None, found)


def _scheme(text: str) -> tuple[str | None, str]:
    head = re.split("[/?]", text, maxsplit=1)[0]
    name, colon, _ = head.partition(":")
    if not colon:
        return None, text
    if not re.fullmatch("[A-Za-z][A-Za-z0-9+.-]*", name):
        raise NotUri(text)
    return name, text[len(name) + 1 :]


def _authority(text: str) -> tuple[str | None, str | None]:
    """Return the user and the host of a server; both None for a registered name.

    Raises:
        NotUri: the text is neither.
    """
    bracket = "]" in text[1:]
    server = (_SERVER_WITH_PERCENT if bracket else _SERVER_ALONE).fullmatch(text) is not None
    registered = _is_of(text, _REGISTERED)
    if server:
        try:
            return _server(text)
        except NotUri:
            if not registered:
                raise
    if not registered:
        raise NotUri(text)
    return None, None


def _server(text: str) -> tuple[str | None, str]:
    user, at, rest = text.partition("@")
    if at:
        _require(user, _USER)
    else:
        user, rest = "", text
    host, port = _host(rest)
    if port and not port.startswith(":"):
        raise NotUri(text)
    if port[1:] and (not re.fullmatch("[0-9]+", port[1:]) or int(port[1:]) > _PORT_MAX):
        raise NotUri(text)
    return (user if at else None), host


def _host(text: str) -> tuple[str, str]:
    """Return the host and the text that follows it."""
    if text.startswith("["):
        end = text.find("]")
        if end < 2:
            raise NotUri(text)
        address, percent, zone = text[1:end].partition("%")
        if percent and not re.fullmatch(r"[A-Za-z0-9_\-!.~'()*]+", zone):
            raise NotUri(text)
        if not _is_six(address):
            raise NotUri(text)
        return text[: end + 1], text[end + 1 :]
    host = text.partition(":")[0]
    if not (_FOUR_BYTES.fullmatch(host) or _HOST_NAME.fullmatch(host)):
        raise NotUri(text)
    return host, text[len(host) :]


def _is_six(address: str) -> bool:
    """Return True for an IPv6 address: eight groups, or fewer with one ``::``. The last two may be an IPv4 address."""
    head, double, tail = address.partition("::")
    groups = [part for side in (head, tail) if side for part in side.split(":")]
    size = 0
    for i, group in enumerate(groups):
        if i == len(groups) - 1 and "." in group and _FOUR_BYTES.fullmatch(group):
            size += 2
        elif _HEXTETS.fullmatch(group):
            size += 1
        else:
            return False
    return size < 8 if double else size == 8


def part_of(uri: Uri, part: str) -> str | None:
    """Return a part by Spark's name for it; None for an unknown name."""
    if part == "FILE":
        return uri.path if uri.query is None else f"{uri.path}?{uri.query}"
    values = {
        "HOST": uri.host, "PATH": uri.path, "QUERY": uri.query, "REF": uri.fragment, "PROTOCOL": uri.scheme,
        "AUTHORITY": uri.authority, "USERINFO": uri.user,
    }  # fmt: skip
    return values.get(part)


def parse_url(part: str, key: str | None, fails: bool, text: str) -> str | None:
    """Return a part of a URL, or the value of a key in its query.

    Args:
        part: Spark's name for the part.
        key: a pattern, as in Spark, which ``java_patterns`` must be able to translate; None for the whole part.
        fails: raise for a text that is not a URL, instead of returning None.
        text: the URL.

    Raises:
        EvaluationError: the text is not a URL and ``fails`` is set.
    """
    try:
        found = part_of(uri_of(text), part)
    except NotUri:
        if fails:
            raise failures.invalid_url(text) from None
        return None
    if key is None or found is None:
        return found
    if part != "QUERY":
        return None
    match = translate(f"(&|^){key}=([^&]*)").compiled.search(found)
    return None if match is None else match[2]
