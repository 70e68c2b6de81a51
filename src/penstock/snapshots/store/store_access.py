"""Access to an object store: endpoint and credentials from the options, or from the environment of each machine."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from penstock.config import CONF_PREFIX, boolean, unknown_option
from penstock.decoding import convert
from penstock.errors import ConfigError

PREFIX = "s3."
"""Prefix of the option names, following ``spark.penstock.``."""


class StoreAccess(msgspec.Struct, frozen=True):
    """Endpoint and credentials of an S3-compatible store.

    None stands for the value of the process's environment (``AWS_ENDPOINT_URL``, ``AWS_REGION``, ``AWS_ACCESS_KEY_ID``
    and so on) or of the machine's role. The object holds secrets: it is sent to slots only over their authenticated
    control link, is never pickled, and ``repr`` and ``str`` do not show it.
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
        """Return True if the access contains secrets, not only the address of the store."""
        return self.secret_key is not None or self.session_token is not None

    def __repr__(self) -> str:
        return "StoreAccess(***)"

    __str__ = __repr__

    def without_secrets(self, text: str) -> str:
        """Return a message with all secrets replaced."""
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
    """Return True if this name, without ``spark.penstock.``, is that of an object store option."""
    return name.lower().startswith(PREFIX)


def parse_access(texts: Mapping[str, str]) -> StoreAccess:
    """Parse the object store options. Error messages contain no option value.

    Args:
        texts: option values by name without prefix, in any case; other options are ignored.

    Raises:
        ConfigError: a name is unknown, a key is incomplete, or a flag or the endpoint is invalid.
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
