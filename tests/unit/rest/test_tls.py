"""The REST service over TLS, and what the command line trusts."""

from __future__ import annotations

import datetime
import http.client
import ipaddress
import json
import os
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

import penstock
from penstock.errors import ConfigError
from penstock.rest.server import RestServer
from tests.support.cli.calling import assert_one_line, query

TOKEN = "a-token-of-some-length"
PEM = serialization.Encoding.PEM


class Pair:
    """A certificate for 127.0.0.1 and its key, as files."""

    def __init__(self, folder: Path, name: str = "service", password: bytes | None = None) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        now, day = datetime.datetime.now(datetime.UTC), datetime.timedelta(days=1)
        address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
        made = (
            x509.CertificateBuilder(
                subject, subject, key.public_key(), x509.random_serial_number(), now - day, now + day
            )
            .add_extension(x509.SubjectAlternativeName([address]), critical=False)
            .sign(key, hashes.SHA256())
        )
        hidden = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
        self.certificate, self.key = folder / f"{name}.pem", folder / f"{name}-key.pem"
        self.certificate.write_bytes(made.public_bytes(PEM))
        self.key.write_bytes(key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, hidden))
        self.key.chmod(0o600)


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return Pair(tmp_path)


@pytest.fixture
def server(pair: Pair) -> Iterator[RestServer]:
    with penstock.serve(token=TOKEN, certificate=pair.certificate, key=pair.key) as running:
        yield running


def port_of(server: RestServer) -> int:
    return int(urlsplit(server.url).port or 0)


def test_who_trusts_the_certificate_is_answered_and_nobody_speaks_in_clear(server: RestServer, pair: Pair) -> None:
    assert server.url == f"https://127.0.0.1:{port_of(server)}"
    context = ssl.create_default_context(cafile=str(pair.certificate))
    connection = http.client.HTTPSConnection("127.0.0.1", port_of(server), context=context, timeout=30)
    headers = {"Authorization": f"Bearer {TOKEN}", "Origin": server.url}
    connection.request("GET", "/api/v1/queries", headers=headers)
    answer = connection.getresponse()
    assert (answer.status, list(json.loads(answer.read()))) == (200, ["queries"])
    connection.request("GET", "/api/v1/queries")
    assert connection.getresponse().status == 401
    connection.close()
    with pytest.raises(ssl.SSLCertVerificationError):
        ssl.create_default_context().wrap_socket(
            socket.create_connection(("127.0.0.1", port_of(server))), server_hostname="127.0.0.1"
        )
    with socket.create_connection(("127.0.0.1", port_of(server)), 10) as plain:
        plain.sendall(b"GET /api/v1/queries HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + TOKEN.encode())
        plain.sendall(b"\r\n\r\n")
        said = b""
        try:
            while part := plain.recv(1 << 12):
                said += part
        except ConnectionResetError:
            pass
    assert b"HTTP" not in said
    assert b"queries" not in said


def test_old_versions_are_refused(server: RestServer, pair: Pair) -> None:
    context = ssl.create_default_context(cafile=str(pair.certificate))
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")
    with socket.create_connection(("127.0.0.1", port_of(server)), 10) as sock, pytest.raises((ssl.SSLError, OSError)):
        context.wrap_socket(sock, server_hostname="127.0.0.1")


def test_what_does_not_fit_is_said_and_no_port_stays_taken(pair: Pair, tmp_path: Path) -> None:
    other, hidden = Pair(tmp_path, "other"), Pair(tmp_path, "hidden", b"a password")
    cut = tmp_path / "cut.pem"
    cut.write_bytes(pair.certificate.read_bytes()[:300])
    nowhere = tmp_path / "nowhere.pem"
    for certificate, key, said in (
        (pair.certificate, None, "takes both"),
        (None, pair.key, "takes both"),
        (nowhere, pair.key, "rest.tls.certificate=.*nowhere.pem.*No such file"),
        (pair.certificate, nowhere, "rest.tls.key=.*nowhere.pem.*No such file"),
        (tmp_path, pair.key, "Is a directory"),
        (pair.key, pair.certificate, "holds no PEM certificate"),
        (pair.certificate, pair.certificate, "holds no PEM key"),
        (pair.certificate, other.key, "is not the key of"),
        (hidden.certificate, hidden.key, "has a password"),
        (cut, pair.key, "one is damaged"),
        ("", "", "is empty"),
    ):
        with pytest.raises(ConfigError, match=said):
            penstock.serve(certificate=certificate, key=key)
    with penstock.serve(token="") as server:
        assert server.url.startswith("http://"), "nothing of those runs"


# -- the command line ----------------------------------------------------


def test_the_command_line_trusts_the_file_that_it_is_given(server: RestServer, pair: Pair, tmp_path: Path) -> None:
    code, out, err = query("list", "--url", server.url, "--ca", str(pair.certificate), PENSTOCK_TOKEN=TOKEN)
    assert (code, err) == (0, ""), err
    assert "query" in out
    named = {"PENSTOCK_URL": server.url, "PENSTOCK_CA": str(pair.certificate), "PENSTOCK_TOKEN": TOKEN}
    assert query("list", **named)[0] == 0
    stranger = Pair(tmp_path, "stranger")
    for ca in ([], ["--ca", str(stranger.certificate)]):
        called = query("list", "--url", server.url, *ca, PENSTOCK_TOKEN=TOKEN)
        assert_one_line(called, "self-signed certificate", "--ca FILE")
    wrong_name = server.url.replace("127.0.0.1", "localhost")
    called = query("list", "--url", wrong_name, "--ca", str(pair.certificate), PENSTOCK_TOKEN=TOKEN)
    assert_one_line(called, "localhost", "made for")


def test_files_and_addresses_that_do_not_fit_are_one_line(server: RestServer, pair: Pair, tmp_path: Path) -> None:
    assert_one_line(
        query("list", "--url", server.url, "--ca", str(tmp_path / "nowhere")), "--ca", "No such file", code=2
    )
    assert_one_line(query("list", "--url", server.url, "--ca", str(pair.key)), "--ca", "no certificate", code=2)
    plain = server.url.replace("https", "http")
    assert_one_line(
        query("list", "--url", plain, "--ca", str(pair.certificate)), "--ca goes with an https:// address", code=2
    )
    assert_one_line(query("list", "--url", plain), "did not answer")


def test_who_writes_https_to_a_service_without_tls_is_told() -> None:
    with penstock.serve(token="") as server:
        called = query("list", "--url", server.url.replace("http", "https"))
    assert_one_line(called, "speaks no TLS", "http://")


def test_the_files_are_read_once(pair: Pair) -> None:
    with penstock.serve(token="", certificate=pair.certificate, key=pair.key) as server:
        os.remove(pair.key)
        assert query("list", "--url", server.url, "--ca", str(pair.certificate))[0] == 0
