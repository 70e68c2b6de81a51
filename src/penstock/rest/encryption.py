"""TLS of the service, with a certificate and a key in PEM files."""

from __future__ import annotations

import ssl

from penstock.errors import ConfigError
from penstock.private_files import check_private


def server_context(certificate: str, key: str) -> ssl.SSLContext:
    """Return a context for TLS 1.2 or newer. The files are read now; later changes take effect with the next server.

    Args:
        certificate: PEM file with the service's certificate, followed by the intermediate certificates.
        key: PEM file with the key of the first certificate, without a password.

    Raises:
        ConfigError: a file cannot be read or is not valid, they do not belong together, or other users can read the
            key.
    """
    for what, path in (("certificate", certificate), ("key", key)):
        try:
            with open(path, "rb") as file:
                text = file.read(1 << 20)
        except OSError as error:
            raise ConfigError(f"rest.tls.{what}={path!r} cannot be read: {error.strerror}") from error
        word = b"CERTIFICATE-----" if what == "certificate" else b"PRIVATE KEY-----"
        if word not in text:
            raise ConfigError(f"rest.tls.{what}={path!r} holds no PEM {what} (-----BEGIN ... {word.decode()})")
    check_private("rest.tls.key", key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2

    def password() -> str:  # without this function OpenSSL would ask at the terminal
        raise ConfigError(f"rest.tls.key={key!r} has a password; give one without, for the driver's user alone")

    try:
        context.load_cert_chain(certificate, key, password)
    except ssl.SSLError as error:
        raise ConfigError(_why(error, certificate, key)) from error
    return context


def _why(error: ssl.SSLError, certificate: str, key: str) -> str:
    if error.reason == "KEY_VALUES_MISMATCH":
        return f"rest.tls.key={key!r} is not the key of rest.tls.certificate={certificate!r}"
    return f"rest.tls.certificate={certificate!r} and rest.tls.key={key!r}: one is damaged, or not PEM throughout"
