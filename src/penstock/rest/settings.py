"""Settings of the REST service: address, port, token, TLS."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field

from penstock.errors import ConfigError, LocationError
from penstock.snapshots.store.stores import location_text

MIN_TOKEN = 16
"""Fewest characters of a token. Shorter ones can be guessed."""
LAST_PORT = 65535
PORT_RETRIES = 16
"""Number of next ports to try if a port is in use. Spark's UI has the same default (``spark.port.maxRetries``)."""
LOOPBACK_NAMES = ("localhost",)


@dataclass(frozen=True)
class ServerSettings:
    """Settings of one server.

    Attributes:
        host: an IP address or ``localhost``.
        port: 0: any free port. A range: its first free port. Any other number: this port or, if it is in use, one of
            the next ``retries``.
        token: token that every request must carry. None: the service creates one. Empty: no token is required.
        certificate, key: PEM files. With both the service uses TLS.
        export_root: folder or prefix below which snapshots may be exported, forked and copied. None: nowhere.

    Raises:
        ConfigError: a host other than loopback without a token; a token that is too short or that a header cannot
            carry; an invalid port, host or export root; a certificate without a key or a key without a certificate; an
            empty path.
    """

    host: str = "127.0.0.1"
    port: int | range = 0
    token: str | None = field(default=None, repr=False)
    certificate: str | None = None
    key: str | None = None
    export_root: str | None = None
    retries: int = field(default=PORT_RETRIES, compare=False)

    def __post_init__(self) -> None:
        if not self.ports or not 0 <= self.ports[0] <= self.ports[-1] <= LAST_PORT:
            raise ConfigError(f"rest.port={self.port}: write a port from 1 to 65535, a range, or 0 for any free one")
        if self.token and (len(self.token) < MIN_TOKEN or not _is_sendable(self.token)):
            raise ConfigError(
                f"rest.token must be {MIN_TOKEN} or more visible ASCII characters; make one with "
                '`python -c "import secrets; print(secrets.token_urlsafe(32))"`'
            )
        if not self.loopback and not self.token:
            raise ConfigError(
                f"rest.host={self.host!r} is reachable from other machines: give a token "
                "(penstock.serve(host=..., token=...)), or leave the host at 127.0.0.1"
            )
        if (self.certificate is None) != (self.key is None):
            raise ConfigError("TLS takes both: rest.tls.certificate and rest.tls.key, PEM files (they may be one)")
        for name, path in self._paths().items():
            if path is not None and not path.strip():
                raise ConfigError(f"{name} is empty; give a path, or leave it out")

        if self.export_root is not None:
            try:
                location_text(self.export_root)
            except LocationError as error:
                raise ConfigError(f"rest.exportRoot cannot be used: {error}") from error

    @property
    def ports(self) -> range:
        """Ports to try in this order. The server listens on the first free one."""
        if isinstance(self.port, range):
            return self.port
        more = min(self.retries, LAST_PORT - self.port) if self.port else 0
        return range(self.port, self.port + max(more, 0) + 1)

    def _paths(self) -> dict[str, str | None]:
        return {"rest.tls.certificate": self.certificate, "rest.tls.key": self.key, "rest.exportRoot": self.export_root}

    @property
    def loopback(self) -> bool:
        """True if only this machine can reach the service."""
        return is_loopback(self.host)


def is_loopback(host: str) -> bool:
    """Return True for ``localhost`` and loopback addresses such as ``127.0.0.1`` and ``::1``.

    Args:
        host: name or address, without a port.

    Raises:
        ConfigError: the host is empty.
    """
    if not host:
        raise ConfigError("rest.host is empty; write an IP address, for example 127.0.0.1, or 0.0.0.0 for all")
    if host.lower() in LOOPBACK_NAMES:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _is_sendable(token: str) -> bool:
    return all("!" <= character <= "~" for character in token)
