"""Signatures of stored blobs, with a key that is not in the checkpoint location.

A user who can only write to a checkpoint location must not be able to run code on the driver. So a pickled commit
message is stored with an HMAC-SHA256, and it is unpickled only after the HMAC is verified.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from pathlib import Path

from penstock.connectors.local_files import create_exclusively
from penstock.errors import ConfigError
from penstock.private_files import check_private

KEY_FILE_VARIABLE = "PENSTOCK_HMAC_KEY_FILE"
KEY_BYTES = 32
_DIGEST_BYTES = hashlib.sha256().digest_size


def load_key() -> bytes:
    """Return the key of this user, which is created on first use with mode 0600.

    The key is read from the file that ``PENSTOCK_HMAC_KEY_FILE`` names, otherwise from
    ``~/.config/penstock/hmac.key``. A query that moves to another machine needs the same key there.

    Raises:
        ConfigError: the file cannot be read or created, is too short, or other users can access it.
    """
    configured = os.environ.get(KEY_FILE_VARIABLE)
    path = Path(configured) if configured else Path.home() / ".config" / "penstock" / "hmac.key"
    try:
        if not path.exists():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            create_exclusively(path, secrets.token_bytes(KEY_BYTES), mode=0o600)
        check_private("the key file", path)
        key = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot use the key file {path}: {error}; {KEY_FILE_VARIABLE} names another") from error
    if len(key) < KEY_BYTES:
        raise ConfigError(f"the key file {path} holds {len(key)} bytes; at least {KEY_BYTES} random ones are needed")
    return key


def sign(key: bytes, purpose: str, blob: bytes) -> bytes:
    """Return the HMAC followed by the blob. The HMAC covers ``purpose``, so the blob is valid for this purpose only."""
    return _digest(key, purpose, blob) + blob


def verify(key: bytes, purpose: str, signed: bytes) -> bytes | None:
    """Return the blob; None if its HMAC is wrong."""
    digest, blob = signed[:_DIGEST_BYTES], signed[_DIGEST_BYTES:]
    return blob if hmac.compare_digest(digest, _digest(key, purpose, blob)) else None


def _digest(key: bytes, purpose: str, blob: bytes) -> bytes:
    return hmac.new(key, purpose.encode() + b"\0" + blob, hashlib.sha256).digest()
