"""UTF-8 as Java decodes it: where and how often U+FFFD takes the place of bytes that are malformed."""

from __future__ import annotations

import re

_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
"""To Java one malformed character; Python replaces each of its bytes. On all other bytes they agree."""
_REPLACEMENT = "\ufffd".encode()


def decode_as_java(data: bytes) -> str:
    """The text, as ``new String(data, UTF_8)`` makes it."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return _SURROGATE.sub(_REPLACEMENT, data).decode(errors="replace")
