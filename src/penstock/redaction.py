"""Redaction of secrets in texts that people read outside the process: error messages, log lines, reasons.

A secret is recognized by the name in front of it (``password=...``) or by its form (``Authorization`` headers, private
keys, URLs with a password). Other secret values are not recognized.

Call ``without_secrets`` before a text is cut: the rest of a secret whose name was cut off is not recognized.
"""

from __future__ import annotations

import base64
import binascii
import re

# No pattern may take more than linear time: texts are of any length, and some are logged on the coordinator's thread.
# So every repetition that can begin at many positions of a text has an upper bound.
_WORDS = (
    r"password|passwd|passphrase|passcode|secret|token|credential|jaas[_.-]?config"
    r"|(?:access|account|api|private|shared|encryption|keystore|master|storage)[_.-]?key"
    r"|\bssl[_.-]key(?![_.-]?(?:store|location|password))|key[_.-]pem|auth[_.-]user[_.-]info"
    r"|(?<![A-Za-z])(?:pass|pwd|pw|sas|sig)(?![A-Za-z])|X-(?:Amz|Goog)-Signature|[?&;]Signature"
)
"""Parts of names whose values are secrets: options of Kafka, S3, Azure, JDBC and HTTP clients, parameters of URLs."""
_NAMED = rf"(?:{_WORDS})[\w.-]{{0,100}}"
_QUOTED = r"(?P<quote>\\{0,3}[\"'])(?:(?!(?P=quote))(?:\\.|[^\\\n]))*(?:(?P=quote))?"
"""A quoted text. The quotes may be escaped. Without a closing quote it extends to the end of the line."""
_PLAIN = r"\{[^{}\n]*\}|\([^()\n]*\)|(?:[^\s,;&)}\]]|[,)}\]](?=[^\s,;&)}\]\"']))+"
"""A JDBC value in braces, a tuple, or a text up to a blank or up to a separator in front of a blank."""
_VALUE = re.compile(
    rf"(?i)(?P<before>{_NAMED}(?:\\{{0,3}}[\"'])?\s{{0,4}}(?:->|=>|[=:]|%3D)\s{{0,4}})[bru]?(?:{_QUOTED}|{_PLAIN})"
)
_ARGUMENT = re.compile(rf"(?i)(?P<before>{_NAMED}\\{{0,3}}[\"']\s{{0,4}},\s{{0,4}})[bru]?{_QUOTED}")
"""``option("password", "...")``: a line of source code in a traceback."""
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
"""A password in a URL. It may contain ``@`` and ``/``. Without ``@`` after it, it extends to the end of the text."""
_USER_OF_URL = re.compile(r"(?i)(?P<before>\bhttps?://)[^\s/:@\"']{1,500}(?=@)")
"""A token in place of the user name."""
_ORACLE = re.compile(r"(?i)(?P<before>\bjdbc:oracle:\w{1,20}:[^\s/@:]{1,200}/)[^\s@]{1,200}(?=@)")
_HIDDEN = r"\g<before>***"
_ALL = (_PRIVATE_KEY, _HEADER, _VALUE, _ARGUMENT, _FLAG, _BEARER, _WEB_TOKEN, _IN_URL, _USER_OF_URL, _ORACLE)


def without_secrets(text: str) -> str:
    """Return the text with ``***`` in place of every recognized secret."""
    for pattern in _ALL:
        text = pattern.sub(_HIDDEN, text)
    return _BASIC.sub(_basic, text)


def _basic(found: re.Match[str]) -> str:
    """Hide a code that decodes to ``user:password``. Other words after "basic" stay, as in "basic aggregation"."""
    code = found["code"].rstrip("=").replace("-", "+").replace("_", "/")
    try:
        plain = base64.b64decode(code[: len(code) - (len(code) % 4 == 1)] + "=" * (-len(code) % 4))
    except binascii.Error:
        return found[0]
    return f"{found['before']}***" if b":" in plain else found[0]
