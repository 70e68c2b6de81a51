"""Per-job secret. It is used only as an HMAC key, and is never printed, logged or sent."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass

SECRET_BYTES = 32
NONCE_BYTES = 32


@dataclass(frozen=True, repr=False)
class Secret:
    """A shared key. ``repr`` and ``str`` do not show it."""

    key: bytes

    @classmethod
    def generate(cls) -> Secret:
        return cls(secrets.token_bytes(SECRET_BYTES))

    def mac(self, *parts: bytes) -> bytes:
        """Return the HMAC-SHA256 of the parts. The length of each is included, so no two lists of parts collide."""
        digest = hmac.new(self.key, digestmod=hashlib.sha256)
        for part in parts:
            digest.update(len(part).to_bytes(4, "little"))
            digest.update(part)
        return digest.digest()

    def verify(self, mac: bytes, *parts: bytes) -> bool:
        return hmac.compare_digest(mac, self.mac(*parts))

    def __repr__(self) -> str:
        return "Secret(***)"


def nonce() -> bytes:
    return secrets.token_bytes(NONCE_BYTES)
