"""UTF-8 decoding with Java's rule for the number of U+FFFD that replace malformed bytes."""

from __future__ import annotations

import re

_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
"""Java replaces all of these bytes by one U+FFFD, Python each byte by one. For all other bytes both agree."""
_REPLACEMENT = "\ufffd".encode()


def decode_as_java(data: bytes) -> str:
    """Return the text of Java's ``new String(data, UTF_8)``."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return _SURROGATE.sub(_REPLACEMENT, data).decode(errors="replace")
