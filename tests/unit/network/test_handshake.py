"""Authentication of a link."""

from __future__ import annotations

import os

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.network import handshake
from penstock.network.handshake import ClientHandshake, Hello, Identity, ServerHandshake, Step
from penstock.network.secret import Secret, nonce
from penstock.version import __version__

SECRET = Secret.generate()
SLOT_3 = Identity("data", 5, 3)


def converse(server: ServerHandshake, client: ClientHandshake) -> tuple[Step, Step]:
    """Both ends' last steps."""
    challenge = server.start()
    assert challenge is not None
    assert client.start() is None
    hello = client.receive(challenge)
    assert hello.send is not None
    at_server = server.receive(hello.send)
    assert at_server.send is not None
    return at_server, client.receive(at_server.send)


def test_both_sides_learn_who_the_client_is() -> None:
    at_server, at_client = converse(
        ServerHandshake(SECRET, "data", 5, nonce()), ClientHandshake(SECRET, SLOT_3, nonce())
    )
    assert at_server.peer == at_client.peer == SLOT_3


@pytest.mark.parametrize(
    ("server", "client", "reason"),
    [
        ((SECRET, "data", 5), (Secret.generate(), SLOT_3), "wrong secret"),
        ((SECRET, "data", 6), (SECRET, SLOT_3), "Generation 5 is over; this is Generation 6"),
        ((SECRET, "control", 5), (SECRET, SLOT_3), "a data link was opened where control links"),
    ],
)
def test_refusals_say_why(server: tuple[Secret, str, int], client: tuple[Secret, Identity], reason: str) -> None:
    at_server, at_client = converse(ServerHandshake(*server, nonce()), ClientHandshake(*client, nonce()))
    assert at_server.peer is None
    assert at_client.peer is None
    assert reason in str(at_server.refused)
    assert reason in str(at_client.refused)


def test_another_version_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    server = ServerHandshake(SECRET, "data", 5, nonce())
    challenge = server.start()
    assert challenge is not None
    monkeypatch.setattr(handshake, "PROTOCOL_VERSION", "0.0.9 (protocol 1)")
    hello = ClientHandshake(SECRET, SLOT_3, nonce()).receive(challenge).send
    monkeypatch.undo()
    assert hello is not None
    assert f"Penstock 0.0.9 (protocol 1) cannot speak to {__version__} (protocol" in str(server.receive(hello).refused)


def test_a_recorded_hello_does_not_open_a_second_link() -> None:
    first = ServerHandshake(SECRET, "data", 5, nonce()).start()
    assert first is not None
    hello = ClientHandshake(SECRET, SLOT_3, nonce()).receive(first).send
    assert hello is not None
    second = ServerHandshake(SECRET, "data", 5, nonce())
    second.start()
    assert second.receive(hello).refused == "wrong secret"


def test_a_claimed_identity_must_be_the_signed_one() -> None:
    server = ServerHandshake(SECRET, "data", 5, nonce())
    challenge = server.start()
    assert challenge is not None
    body = ClientHandshake(SECRET, SLOT_3, nonce()).receive(challenge).send
    assert body is not None
    hello = msgspec.msgpack.decode(body, type=Hello)
    forged = msgspec.msgpack.encode(msgspec.structs.replace(hello, slot=0))
    assert server.receive(forged).refused == "wrong secret"


def test_a_server_without_the_secret_is_not_trusted() -> None:
    client = ClientHandshake(SECRET, SLOT_3, nonce())
    impostor = ServerHandshake(Secret.generate(), "data", 5, nonce())
    challenge = impostor.start()
    assert challenge is not None
    client.receive(challenge)
    welcome = msgspec.msgpack.encode(handshake.Welcome(os.urandom(32)))
    assert client.receive(welcome).refused == "the other side does not know the secret"


@pytest.mark.parametrize("body", [b"", b"GET / HTTP/1.1\r\n\r\n", os.urandom(200), b"\x81\xa4type\xa7Welcome"])
def test_strangers_are_refused(body: bytes) -> None:
    server = ServerHandshake(SECRET, "data", 5, nonce())
    server.start()
    assert server.receive(body).refused == "this is no Penstock handshake"
    assert ClientHandshake(SECRET, SLOT_3, nonce()).receive(body).refused is not None


def test_the_secret_is_not_shown_and_not_sent() -> None:
    key = SECRET.key
    assert "***" in repr(SECRET)
    assert key.hex() not in repr(SECRET) + str(SECRET)
    assert repr(key) not in f"{SECRET!r} {SECRET}"
    challenge = ServerHandshake(SECRET, "data", 5, nonce()).start()
    assert challenge is not None
    hello = ClientHandshake(SECRET, SLOT_3, nonce()).receive(challenge).send
    assert hello is not None
    assert key not in challenge + hello


@given(st.binary(max_size=300))
@example(b"\x82\xa4type\xa5\x87ello")
@example(b"")
def test_no_words_of_a_stranger_raise(said: bytes) -> None:
    for machine in (ServerHandshake(SECRET, "data", 5, nonce()), ClientHandshake(SECRET, SLOT_3, nonce())):
        machine.start()
        step = machine.receive(said)
        assert step.peer is None
        assert step.refused or (isinstance(machine, ClientHandshake) and step.send)
