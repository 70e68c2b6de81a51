"""How an object store is reached, and as whom: what the user said, or else what each machine's environment says."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from penstock.config import CONF_PREFIX, boolean, unknown_option
from penstock.decoding import convert
from penstock.errors import ConfigError

PREFIX = "s3."
"""Of the options that say it, behind ``spark.penstock.``."""


class StoreAccess(msgspec.Struct, frozen=True):
    """Of an S3-compatible store. None: what the environment of the process says (``AWS_ENDPOINT_URL``, ``AWS_REGION``,
    ``AWS_ACCESS_KEY_ID`` and so on), or the role of the machine that it runs on.

    It holds secrets: it is sent to slots over their authenticated control link, pickled nowhere, and ``repr`` and
    ``str`` do not show it.
    """

    endpoint: str | None = None
    region: str | None = None
    access_key: str | None = None
    secret_key: str | None = None
    session_token: str | None = None
    allow_http: bool | None = None
    path_style: bool | None = None

    @property
    def has_keys(self) -> bool:
        """True if it has secrets besides the address of the store."""
        return self.secret_key is not None or self.session_token is not None

    def __repr__(self) -> str:
        return "StoreAccess(***)"

    __str__ = __repr__

    def without_secrets(self, text: str) -> str:
        """A message in which none of them stands."""
        for secret in (self.secret_key, self.session_token):
            if secret:
                text = text.replace(secret, "***")
        return text


_TEXTS = {
    "s3.endpoint": "endpoint",
    "s3.region": "region",
    "s3.accessKey": "access_key",
    "s3.secretKey": "secret_key",
    "s3.sessionToken": "session_token",
}
_FLAGS = {"s3.allowHttp": "allow_http", "s3.pathStyle": "path_style"}
_URL = re.compile(r"^https?://[^/\s]+")
ACCESS_OPTIONS = tuple(sorted([*_TEXTS, *_FLAGS]))


def is_access_option(name: str) -> bool:
    """``name``: without ``spark.penstock.``."""
    return name.lower().startswith(PREFIX)


def parse_access(texts: Mapping[str, str]) -> StoreAccess:
    """What those of the options say that are about the store; no message shows a value.

    Args:
        texts: options by name without prefix, in any case; the others are passed over.

    Raises:
        ConfigError: an unknown name, half a key, a flag or an endpoint that is none.
    """
    by_lower = {name.lower(): name for name in ACCESS_OPTIONS}
    said: dict[str, str | bool] = {}
    for name, text in texts.items():
        if not is_access_option(name):
            continue
        known = by_lower.get(name.lower())
        if known is None:
            raise unknown_option(f"{CONF_PREFIX}{name}", "object stores", [CONF_PREFIX + one for one in ACCESS_OPTIONS])
        if known in _FLAGS:
            said[_FLAGS[known]] = boolean(f"{CONF_PREFIX}{known}", str(text))
        elif str(text).strip():
            said[_TEXTS[known]] = str(text).strip()
    access = convert(said, StoreAccess)
    if access.endpoint is not None and ("@" in access.endpoint or not _URL.match(access.endpoint)):
        raise ConfigError(
            f"option {CONF_PREFIX}s3.endpoint is no https://host:port (or http:, with s3.allowHttp); keys do not "
            "belong into it"
        )
    if (access.access_key is None) != (access.secret_key is None):
        raise ConfigError(
            f"options {CONF_PREFIX}s3.accessKey and {CONF_PREFIX}s3.secretKey belong together: give both, or none and "
            "let the environment say them"
        )
    if access.session_token is not None and access.access_key is None:
        raise ConfigError(f"option {CONF_PREFIX}s3.sessionToken goes with {CONF_PREFIX}s3.accessKey and s3.secretKey")
    return access
