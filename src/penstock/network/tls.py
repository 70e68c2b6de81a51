"""TLS 1.3 for control and data links. Each generation has its own key and certificate and trusts no other.

Slots receive both with their task, as they receive the secret. So there is nothing to set up, and nothing expires. Both
sides of a link present the certificate. The connection by which Spark sends tasks must be encrypted, too
(``spark.network.crypto.enabled``, ``spark.ssl``): otherwise an eavesdropper on it obtains the key.
"""

from __future__ import annotations

import datetime
import socket
import ssl
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.errors import ConfigError

_NAME = "penstock"
_LIFE = datetime.timedelta(days=3650)
_SKEW = datetime.timedelta(days=1)
"""Tolerance for clocks of other machines that are slow."""
_RECORD_BYTES = 64 << 10
"""Bytes encrypted at once. Smaller pieces are joined up to this size; larger ones are cut."""


@dataclass(frozen=True, repr=False)
class Credentials:
    """Key and certificate as PEM texts. ``repr`` and ``str`` do not show them."""

    certificate: str
    key: str

    @classmethod
    def generate(cls) -> Credentials:
        """Generate a key and its certificate, on the driver. Raises ConfigError without the package cryptography."""
        try:
            from cryptography import x509
            from cryptography.hazmat.primitives import hashes, serialization
            from cryptography.hazmat.primitives.asymmetric import ec
        except ImportError as missing:
            raise ConfigError(
                "spark.penstock.network.tls=true needs the package cryptography in the driver: "
                "pip install 'penstock[tls]'"
            ) from missing
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, _NAME)])
        now = datetime.datetime.now(datetime.UTC)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _SKEW)
            .not_valid_after(now + _LIFE)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(key, hashes.SHA256())
        )
        pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
        return cls(
            certificate.public_bytes(pem).decode(),
            key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain).decode(),
        )

    def contexts(self) -> Contexts:
        return Contexts(self._context(ssl.PROTOCOL_TLS_SERVER), self._context(ssl.PROTOCOL_TLS_CLIENT))

    def _context(self, protocol: int) -> ssl.SSLContext:
        context = ssl.SSLContext(protocol)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname = False  # a peer with the key belongs to this generation, on any host
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=self.certificate)
        with tempfile.NamedTemporaryFile("w", prefix="penstock-tls-") as file:  # ssl reads keys from files only
            file.write(self.key + self.certificate)
            file.flush()
            context.load_cert_chain(file.name)
        return context

    def __repr__(self) -> str:
        return "Credentials(***)"


@dataclass(frozen=True)
class Contexts:
    """TLS contexts of the accepting and of the connecting side."""

    server: ssl.SSLContext
    client: ssl.SSLContext


class MustReadFirst(BlockingIOError):
    """Raised if sending must wait until the socket is readable instead of writable."""


class TlsSocket:
    """Encrypted non-blocking socket with the calls that a link needs. These calls also perform the TLS handshake.

    ``socket`` is for selectors. After ``recv_into`` there may be decrypted bytes that no selector reports; see
    ``pending``.
    """

    def __init__(self, sock: socket.socket, contexts: Contexts, server_side: bool) -> None:
        context = contexts.server if server_side else contexts.client
        self.socket = context.wrap_socket(sock, server_side=server_side, do_handshake_on_connect=False)
        self._begun: bytes | memoryview | None = None  # a write must be retried with the same bytes

    def pending(self) -> int:
        """Return the number of bytes that ``recv_into`` can return without reading the socket."""
        return self.socket.pending()

    def recv_into(self, buffer: memoryview) -> int:
        try:
            return self.socket.recv_into(buffer)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as wait:
            raise BlockingIOError from wait

    def sendmsg(self, parts: Sequence[memoryview]) -> int:
        """Send the first bytes of the parts and return how many were sent."""
        if self._begun is None:
            self._begun = _first_bytes(parts)
        try:
            sent = self.socket.send(self._begun)
        except ssl.SSLWantReadError as wait:
            raise MustReadFirst from wait
        except ssl.SSLWantWriteError as wait:
            raise BlockingIOError from wait
        self._begun = None
        return sent


def _first_bytes(parts: Sequence[memoryview]) -> bytes | memoryview:
    if parts[0].nbytes >= _RECORD_BYTES or len(parts) == 1:
        return parts[0][:_RECORD_BYTES]
    joined, size = [], 0
    for part in parts:
        joined.append(part[: _RECORD_BYTES - size])
        size += joined[-1].nbytes
        if size == _RECORD_BYTES:
            break
    return b"".join(joined)
