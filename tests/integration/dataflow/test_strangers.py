"""Untrusted clients: without the secret of a running query they get nothing from its ports, and break nothing."""

from __future__ import annotations

import random
import socket
import ssl
import struct
from pathlib import Path

import pytest

from penstock.network.frames import FrameReader, FrameWriter, MessageKind
from penstock.network.handshake import ClientHandshake, Identity
from penstock.network.secret import Secret, nonce
from penstock.network.tls import Credentials
from tests.support.dataflow.process_launcher import ProcessLauncher
from tests.support.dataflow.running import run
from tests.support.dataflow.tiny import Numbers, assert_exact, tiny_graph

ROWS = 30_000
ATTEMPTS = 150


def frame(kind: MessageKind, body: bytes) -> bytes:
    writer = FrameWriter()
    writer.push(kind, 0, [body])
    return b"".join(bytes(part) for part in writer.frames(1 << 20))


def challenge(sock: socket.socket) -> bytes:
    reader = FrameReader(1 << 10)
    while True:
        count = sock.recv_into(reader.writable())
        assert count, "the server speaks first"
        for message in reader.received(count):
            return message.body.to_pybytes()


def mutated(chance: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        match chance.randrange(3):
            case 0:
                changed[chance.randrange(len(changed))] = chance.randrange(256)
            case 1:
                del changed[chance.randrange(len(changed)) :]
            case _:
                changed += chance.randbytes(chance.randint(1, 40))
        changed = changed or bytearray(b"x")
    return bytes(changed)


def attempt(chance: random.Random, port: int, tls: bool) -> bytes:
    """One stranger; returns what it was told after it had spoken, if anything."""
    try:
        return shout(chance, port) if tls else lie(chance, port)
    except OSError:
        return b""


def shout(chance: random.Random, port: int) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=5) as sock:
        sock.sendall(chance.randbytes(chance.randint(1, 300)))
        sock.shutdown(socket.SHUT_WR)
        return sock.recv(1 << 16)


def lie(chance: random.Random, port: int) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=5) as sock:
        identity = Identity(chance.choice(["control", "data"]), chance.choice([1, 2]), chance.randrange(4))
        hello = ClientHandshake(Secret.generate(), identity, nonce()).receive(challenge(sock)).send
        assert hello is not None
        match chance.randrange(4):
            case 0:
                said = frame(MessageKind.HANDSHAKE, hello)
            case 1:
                said = mutated(chance, frame(MessageKind.HANDSHAKE, hello))
            case 2:
                said = frame(chance.choice(list(MessageKind)), chance.randbytes(chance.randint(0, 200)))
            case _:
                said = struct.pack("<I", chance.randrange(1 << 32)) + chance.randbytes(chance.randint(0, 400))
        sock.sendall(said)
        sock.shutdown(socket.SHUT_WR)
        return sock.recv(1 << 16)


def answer_to(port: int, secret: Secret, identity: Identity, heard: bytes | None = None) -> bytes:
    """Return the reply to a client that knows the secret.

    Args:
        heard: the challenge of another connection, which the client answers instead.
    """
    with socket.create_connection(("127.0.0.1", port), timeout=5) as sock:
        own = challenge(sock)
        hello = ClientHandshake(secret, identity, nonce()).receive(heard or own).send
        assert hello is not None
        sock.sendall(frame(MessageKind.HANDSHAKE, hello))
        return sock.recv(1 << 16)


def assert_nothing_counts_twice(port: int, role: str, secret: Secret) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=5) as other:
        assert b"wrong secret" in answer_to(port, secret, Identity(role, 1, 0), challenge(other))
    assert b"Generation 2 is over" in answer_to(port, secret, Identity(role, 2, 0)), "the secret is right"


def told_to_a_foreign_certificate(port: int) -> bytes:
    """Return the reply to the client of another Generation, which trusts any certificate."""
    context = Credentials.generate().contexts().client
    context.verify_mode = ssl.CERT_NONE
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as sock, context.wrap_socket(sock) as wrapped:
            return wrapped.recv(1 << 16)
    except OSError:
        return b""


@pytest.mark.parametrize("tls", [False, True])
def test_a_query_goes_on_whatever_strangers_say(tls: bool, tmp_path: Path, launcher: ProcessLauncher) -> None:
    graph = tiny_graph(tmp_path / "out", 2, Numbers(ROWS, rate=10_000))
    query = run(graph, tmp_path / "chk", launcher, network_tls=tls)
    query.until_running(1)
    service = query.execution._service
    assert service is not None
    current = service._slots
    assert current is not None
    ports = [current._server.port, *(message.data_port for message in current.registered.values())]
    chance = random.Random(7)
    told = [attempt(chance, ports[number % len(ports)], tls) for number in range(ATTEMPTS)]
    assert all(len(answer) < 200 for answer in told)
    assert tls or any(b"wrong secret" in answer for answer in told)
    for number, port in enumerate(ports):
        if tls:
            assert told_to_a_foreign_certificate(port) == b""
        else:
            assert_nothing_counts_twice(port, "data" if number else "control", current._server._secret)
    query.execution.process_all_available(60)
    assert query.view.generation == 1
    query.execution.stop()
    assert_exact(tmp_path / "out", ROWS)
