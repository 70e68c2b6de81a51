"""UTF-8 decoding with Java's rule for malformed bytes: which bytes one U+FFFD replaces."""

from __future__ import annotations

import re

_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
"""Java replaces these bytes by one U+FFFD, Python by one for each byte. For all other bytes both agree."""
_REPLACEMENT = "\ufffd".encode()


def decode_as_java(data: bytes) -> str:
    """Return the text of Java's ``new String(data, UTF_8)``."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return _SURROGATE.sub(_REPLACEMENT, data).decode(errors="replace")
