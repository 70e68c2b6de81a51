"""Secrets struck out of texts that leave the process for people: error messages, log lines, reasons.

A secret is recognized by the name it is given to (``password=...``) or by its shape (``Authorization`` headers, private
keys, URLs with a password). Values that only the user knows to be secret are not recognized.

Call ``without_secrets`` before a text is cut: half a secret without its name is not recognized.
"""

from __future__ import annotations

import base64
import binascii
import re

# No pattern may take more than linear time: texts are of any length, and some are logged on the coordinator's thread.
# So every repetition that can begin at many places of a text is bounded.
_WORDS = (
    r"password|passwd|passphrase|passcode|secret|token|credential|jaas[_.-]?config"
    r"|(?:access|account|api|private|shared|encryption|keystore|master|storage)[_.-]?key"
    r"|\bssl[_.-]key(?![_.-]?(?:store|location|password))|key[_.-]pem|auth[_.-]user[_.-]info"
    r"|(?<![A-Za-z])(?:pass|pwd|pw|sas|sig)(?![A-Za-z])|X-(?:Amz|Goog)-Signature|[?&;]Signature"
)
"""Parts of names whose values are secrets: options of Kafka, S3, Azure, JDBC and HTTP clients, and query parameters."""
_NAMED = rf"(?:{_WORDS})[\w.-]{{0,100}}"
_QUOTED = r"(?P<quote>\\{0,3}[\"'])(?:(?!(?P=quote))(?:\\.|[^\\\n]))*(?:(?P=quote))?"
"""A text in quotes, which may be escaped themselves. One that has lost its end goes on to the end of the line."""
_PLAIN = r"\{[^{}\n]*\}|\([^()\n]*\)|(?:[^\s,;&)}\]]|[,)}\]](?=[^\s,;&)}\]\"']))+"
"""A JDBC value in braces, a tuple, or what ends at a blank or at a separator that a blank follows."""
_VALUE = re.compile(
    rf"(?i)(?P<before>{_NAMED}(?:\\{{0,3}}[\"'])?\s{{0,4}}(?:->|=>|[=:]|%3D)\s{{0,4}})[bru]?(?:{_QUOTED}|{_PLAIN})"
)
_ARGUMENT = re.compile(rf"(?i)(?P<before>{_NAMED}\\{{0,3}}[\"']\s{{0,4}},\s{{0,4}})[bru]?{_QUOTED}")
"""``option("password", "...")``, as a line of a traceback shows it."""
_FLAG = re.compile(rf"(?i)(?P<before>--[\w.-]{{0,40}}?{_NAMED}\s{{1,4}})(?:{_QUOTED}|[^\s\"'-]\S*)")
_HEADER = re.compile(
    r"(?i)(?P<before>authorization(?:\\{0,3}[\"'])?\s{0,4}[=:,]\s{0,4}+)(?!\*\*\*)(?:(?P<quote>\\{0,3}[\"'])"
    r"(?:(?!(?P=quote))[^\n])*(?:(?P=quote))?|[^\n\"']+)"
)
_BEARER = re.compile(r"(?i)(?P<before>\bbearer\s{1,4})[^\s\"']+")
_BASIC = re.compile(r"(?i)(?P<before>\bbasic\s{1,4})(?P<code>[A-Za-z0-9+/_-]{4,}={0,2})")
_WEB_TOKEN = re.compile(r"(?P<before>)\beyJ[\w-]{10,}\.[\w-]{10,}(?:\.[\w-]*)?")
_PRIVATE_KEY = re.compile(
    r"(?P<before>-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----).*?(?:-----END [A-Z ]{0,40}-----|\Z)", re.S
)
_IN_URL = re.compile(
    r"(?P<before>://[^\s/:@\"']{0,200}:)(?!\d{1,5}(?:[/?#,;\s\"']|\Z))"
    r"(?:[^\s\"'<>]{1,500}(?=@)|[^\s\"'<>@]{1,500}\Z)"
)
"""A password may hold ``@`` and ``/`` as they are. One that was cut in front of its ``@`` ends with the text."""
_USER_OF_URL = re.compile(r"(?i)(?P<before>\bhttps?://)[^\s/:@\"']{1,500}(?=@)")
"""A token in the place of the user."""
_ORACLE = re.compile(r"(?i)(?P<before>\bjdbc:oracle:\w{1,20}:[^\s/@:]{1,200}/)[^\s@]{1,200}(?=@)")
_HIDDEN = r"\g<before>***"
_ALL = (_PRIVATE_KEY, _HEADER, _VALUE, _ARGUMENT, _FLAG, _BEARER, _WEB_TOKEN, _IN_URL, _USER_OF_URL, _ORACLE)


def without_secrets(text: str) -> str:
    """Return the text with ``***`` in the place of every secret that is recognized."""
    for pattern in _ALL:
        text = pattern.sub(_HIDDEN, text)
    return _BASIC.sub(_basic, text)


def _basic(found: re.Match[str]) -> str:
    """Hide what decodes to ``user:password``; "basic aggregation" stays."""
    code = found["code"].rstrip("=").replace("-", "+").replace("_", "/")
    try:
        plain = base64.b64decode(code[: len(code) - (len(code) % 4 == 1)] + "=" * (-len(code) % 4))
    except binascii.Error:
        return found[0]
    return f"{found['before']}***" if b":" in plain else found[0]
