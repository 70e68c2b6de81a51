"""Links over real sockets on loopback: order, size, refusal, loss, and nothing left behind."""

from __future__ import annotations

import queue
import socket
import struct
import threading
import time
from collections.abc import Iterator

import pytest

from penstock.errors import GenerationFailed, PenstockError
from penstock.network import transport
from penstock.network.frames import Message, MessageKind
from penstock.network.handshake import ClientHandshake, Identity, ServerHandshake
from penstock.network.secret import Secret, nonce
from penstock.network.tls import Contexts, Credentials
from penstock.network.transport import IoLoop, Link, Listener, connect

SECRET = Secret.generate()


class End:
    """One side of a link, with everything that happened to it."""

    def __init__(self) -> None:
        self.opened: queue.Queue[Identity] = queue.Queue()
        self.messages: queue.Queue[Message] = queue.Queue()
        self.closed: queue.Queue[PenstockError | None] = queue.Queue()
        self.link: Link | None = None

    def make(
        self, loop: IoLoop, sock: socket.socket, handshake: ServerHandshake | ClientHandshake, tls: Contexts | None
    ) -> Link:
        self.link = Link(
            loop,
            sock,
            handshake,
            on_open=lambda link, peer: self.opened.put(peer),
            on_message=self.messages.put,
            on_close=lambda link, error: self.closed.put(error),
            tls=tls,
        )
        return self.link


class Net:
    """A loop with a listener of Generation 1."""

    def __init__(self, tls: Contexts | None = None) -> None:
        self.tls = tls
        self.crashes: list[BaseException] = []
        self.loop = IoLoop("test-io", self.crashes.append)
        self.loop.start()
        self.server = End()
        self.listener = Listener(self.loop, "127.0.0.1")
        self.listener.accept(
            lambda sock: self.server.make(self.loop, sock, ServerHandshake(SECRET, "data", 1, nonce()), tls)
        )

    def client(self, secret: Secret = SECRET, generation: int = 1, tls: Contexts | None = None) -> End:
        end = End()
        sock = connect("127.0.0.1", self.listener.port, 5)
        end.make(self.loop, sock, ClientHandshake(secret, Identity("data", generation, 2), nonce()), tls or self.tls)
        return end

    def close(self) -> None:
        self.listener.close()
        self.loop.stop()


@pytest.fixture(params=[None, Credentials.generate().contexts()], ids=["plain", "tls"])
def net(request: pytest.FixtureRequest) -> Iterator[Net]:
    before = set(threading.enumerate())
    made = Net(request.param)
    yield made
    made.close()
    assert not made.crashes
    assert set(threading.enumerate()) <= before, "no thread of its own; those of others may have ended"


def test_messages_flow_both_ways_after_the_handshake(net: Net) -> None:
    client = net.client()
    assert client.opened.get(timeout=30) == net.server.opened.get(timeout=30) == Identity("data", 1, 2)
    assert client.link is not None
    assert net.server.link is not None
    for number in range(100):
        client.link.send(MessageKind.CONTROL, 0, [b"%d" % number])
    net.server.link.send(MessageKind.CONTROL, 0, [b"back"])
    assert [net.server.messages.get(timeout=30).body.to_pybytes() for _ in range(100)] == [
        b"%d" % n for n in range(100)
    ]
    assert client.messages.get(timeout=30).body.to_pybytes() == b"back"
    client.link.close()
    assert client.closed.get(timeout=30) is None
    assert "closed by the other side" in str(net.server.closed.get(timeout=30))


def test_many_threads_and_large_messages(net: Net) -> None:
    client = net.client()
    client.opened.get(timeout=30)
    link = client.link
    assert link is not None

    def send(stream: int) -> None:
        for number in range(20):
            link.send(MessageKind.BUFFER, stream, [bytes([number]) * 600_000])
            link.send(MessageKind.ELEMENT, stream, [bytes([number])])

    threads = [threading.Thread(target=send, args=(stream,)) for stream in range(4)]
    for thread in threads:
        thread.start()
    seen: dict[int, list[tuple[int, int]]] = {stream: [] for stream in range(4)}
    for _ in range(160):
        message = net.server.messages.get(timeout=20)
        seen[message.stream].append((message.body.size, message.body[0]))
    for thread in threads:
        thread.join()
    assert all(got == [(size, n) for n in range(20) for size in (600_000, 1)] for got in seen.values())
    link.abort()
    client.closed.get(timeout=30)
    net.server.closed.get(timeout=30)


@pytest.mark.parametrize(
    ("secret", "generation", "reason"), [(Secret.generate(), 1, "wrong secret"), (SECRET, 9, "Generation 9 is over")]
)
def test_wrong_peers_are_refused_on_both_sides(net: Net, secret: Secret, generation: int, reason: str) -> None:
    client = net.client(secret, generation)
    for end in (client, net.server):
        error = end.closed.get(timeout=30)
        assert isinstance(error, GenerationFailed)
        assert reason in str(error)
        assert end.opened.empty()


@pytest.mark.parametrize("garbage", [b"GET / HTTP/1.1\r\n\r\n", b"\0" * 64, b"\xff" * 5000])
def test_strangers_are_cut_off(net: Net, garbage: bytes) -> None:
    with socket.create_connection(("127.0.0.1", net.listener.port)) as sock:
        sock.sendall(garbage)
        assert isinstance(net.server.closed.get(timeout=30), GenerationFailed)
    assert net.server.opened.empty()


def test_a_silent_peer_is_dropped_after_the_timeout(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "HANDSHAKE_TIMEOUT_S", 0.2)
    with socket.create_connection(("127.0.0.1", net.listener.port)):
        error = net.server.closed.get(timeout=30)
    assert "did not finish its handshake" in str(error)


def test_silent_strangers_do_not_keep_a_slot_out(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "HANDSHAKE_TIMEOUT_S", 0.3)
    monkeypatch.setattr(transport, "MAX_UNAUTHENTICATED", 4)
    strangers = [socket.create_connection(("127.0.0.1", net.listener.port)) for _ in range(6)]
    time.sleep(0.1)
    monkeypatch.setattr(transport, "HANDSHAKE_TIMEOUT_S", 5)
    client = net.client()
    assert client.opened.get(timeout=30).slot == 2
    for sock in strangers:
        sock.close()
    assert client.link is not None
    client.link.abort()
    client.closed.get(timeout=30)


def silent(net: Net, address: str) -> socket.socket:
    return socket.create_connection(("127.0.0.1", net.listener.port), source_address=(address, 0))


def is_cut(sock: socket.socket) -> bool:
    """Return True if the other side has closed the connection. The challenge arrives before that."""
    sock.settimeout(5)
    try:
        while sock.recv(1 << 10):
            continue
    except TimeoutError:
        return False
    except OSError:
        return True
    return True


def test_one_address_never_takes_all_places(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slot of another address gets a place at once, one of the same address soon, without waiting for a time-out."""
    monkeypatch.setattr(transport, "HANDSHAKE_TIMEOUT_S", 600)
    monkeypatch.setattr(transport, "MAX_UNAUTHENTICATED", 6)
    monkeypatch.setattr(transport, "MAX_UNAUTHENTICATED_PER_ADDRESS", 3)
    monkeypatch.setattr(transport, "GRACE_S", 0.3)
    crowd = [silent(net, "127.0.0.2") for _ in range(3)]
    few = [silent(net, "127.0.0.3") for _ in range(2)]
    time.sleep(0.5)
    crowd.append(silent(net, "127.0.0.2"))
    assert is_cut(crowd[0]), "the oldest of its own address"
    client = net.client()  # 127.0.0.1: the sixth place
    assert client.opened.get(timeout=30).slot == 2
    few.append(silent(net, "127.0.0.3"))
    time.sleep(0.5)
    silent_too = silent(net, "127.0.0.4")
    assert is_cut(crowd[1]), "the oldest of the address that has most"
    for sock in (*crowd, *few, silent_too):
        sock.close()
    assert client.link is not None
    client.link.abort()
    client.closed.get(timeout=30)


def test_a_full_address_waits_for_real_peers_to_end_their_handshake(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "GRACE_S", 600)
    monkeypatch.setattr(transport, "MAX_UNAUTHENTICATED_PER_ADDRESS", 2)
    strangers = [silent(net, "127.0.0.1") for _ in range(2)]
    client = net.client()
    with pytest.raises(queue.Empty):
        client.opened.get(timeout=0.5)
    strangers[0].close()
    assert client.opened.get(timeout=30).slot == 2
    strangers[1].close()
    assert client.link is not None
    client.link.abort()
    client.closed.get(timeout=30)


HEADER = struct.Struct("<IIHH")


@pytest.mark.parametrize("fragment", [(0, 100), (0, 0), (1, 100)])
def test_a_peer_without_a_secret_is_cut_off_after_some_bytes(net: Net, fragment: tuple[int, int]) -> None:
    """The bytes are in empty fragments, empty messages, or tiny ones."""
    length, remaining = fragment
    sent = 0
    with socket.create_connection(("127.0.0.1", net.listener.port)) as sock:
        sock.settimeout(10)
        try:
            while sent < 1 << 20:
                frame = HEADER.pack(length, remaining, 0, MessageKind.HANDSHAKE) + b"x" * length
                remaining -= length
                sock.sendall(frame)
                sent += len(frame)
        except OSError:
            pass
        except struct.error:
            assert remaining < 0
        assert isinstance(net.server.closed.get(timeout=30), GenerationFailed)
    assert net.server.opened.empty()


def test_a_handshake_has_a_bound_in_bytes(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    if net.tls is not None:
        pytest.skip("what is encrypted has to be made by a client of TLS; it is counted alike")
    monkeypatch.setattr(transport, "HANDSHAKE_BYTES", 50)
    with socket.create_connection(("127.0.0.1", net.listener.port)) as sock:
        sock.sendall(b"".join(HEADER.pack(1, 1000 - n, 0, MessageKind.HANDSHAKE) + b"x" for n in range(10)))
        assert "over 50 bytes" in str(net.server.closed.get(timeout=30))


def test_the_end_of_a_peer_is_seen_at_once(net: Net) -> None:
    client = net.client()
    net.server.opened.get(timeout=30)
    assert client.link is not None
    client.link.abort()
    reason = str(net.server.closed.get(timeout=30))
    # What was on its way when the peer died makes its kernel answer with a reset.
    assert "closed by the other side" in reason or "reset by peer" in reason


def test_nobody_there_is_an_error_that_names_the_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port = sock.getsockname()[1]
    with pytest.raises(GenerationFailed, match=f"127.0.0.1:{port}"):
        connect("127.0.0.1", port, 1)
