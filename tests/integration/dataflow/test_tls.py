"""Encrypted links: who has not the Generation's key gets nothing, whatever was recorded before."""

from __future__ import annotations

import os
import signal
import socket
import ssl
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.errors import ConfigError, GenerationFailed
from penstock.network.frames import MessageKind
from penstock.network.tls import Credentials
from penstock.network.transport import connect
from tests.support.dataflow.process_launcher import ProcessLauncher
from tests.support.dataflow.running import run
from tests.support.dataflow.tiny import Numbers, assert_exact, tiny_graph
from tests.unit.network.test_transport import End, Net

OURS = Credentials.generate()


@pytest.fixture
def net() -> Iterator[Net]:
    made = Net(OURS.contexts())
    yield made
    made.close()
    assert not made.crashes


def refused(net: Net) -> str:
    error = net.server.closed.get(timeout=30)
    assert isinstance(error, GenerationFailed)
    assert net.server.opened.empty()
    return str(error)


def test_a_certificate_of_another_generation_is_refused_by_either_side(net: Net) -> None:
    client = net.client(tls=Credentials.generate().contexts())
    assert "link broke" in refused(net)
    assert isinstance(client.closed.get(timeout=30), GenerationFailed)
    assert client.opened.empty()


def test_a_client_without_a_certificate_is_refused(net: Net) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with socket.create_connection(("127.0.0.1", net.listener.port)) as sock, context.wrap_socket(sock) as wrapped:
        assert "link broke" in refused(net)
        with pytest.raises(OSError, match=r"(?i)certificate|reset|eof"):
            wrapped.recv(1)  # what the server says to all the world is a challenge, once it knows who asks


def test_plain_links_are_refused(net: Net) -> None:
    sock = connect("127.0.0.1", net.listener.port, 5)
    sock.sendall(b"\x20\0\0\0 a frame of an unencrypted link".ljust(200, b"\0"))
    assert "link broke" in refused(net)
    sock.close()


class Tap:
    """A relay before the listener that keeps what the client says."""

    def __init__(self, port: int) -> None:
        self.said = b""
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        self._upstream = socket.create_connection(("127.0.0.1", port))
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        client, _ = self._server.accept()
        with self._server, self._upstream, client:
            back = threading.Thread(target=self._answer, args=(client,), daemon=True)
            back.start()
            while data := client.recv(1 << 16):
                self.said += data
                self._upstream.sendall(data)
            self._upstream.shutdown(socket.SHUT_WR)
            back.join()

    def _answer(self, client: socket.socket) -> None:
        while data := self._upstream.recv(1 << 16):
            client.sendall(data)


@pytest.mark.parametrize("encrypted", [True, False])
def test_what_was_said_before_counts_for_nothing_again(encrypted: bool) -> None:
    """Also unencrypted: the secret answers a nonce that is new for each link."""
    net = Net(OURS.contexts() if encrypted else None)
    tap = Tap(net.listener.port)
    client = End()
    port, net.listener.port = net.listener.port, tap.port
    try:
        client = net.client()
        net.listener.port = port
        assert client.opened.get(timeout=30) == net.server.opened.get(timeout=30)
        assert client.link is not None
        client.link.send(MessageKind.CONTROL, 0, [b"a secret word"])
        assert net.server.messages.get(timeout=30).body.to_pybytes() == b"a secret word"
        assert (b"a secret word" in tap.said) is not encrypted
        client.link.close()
        net.server.closed.get(timeout=30)
        tap.thread.join(30)
        with socket.create_connection(("127.0.0.1", port)) as sock:
            sock.sendall(tap.said)
            error = net.server.closed.get(timeout=30)
        assert isinstance(error, GenerationFailed)
        assert net.server.opened.empty()
        assert net.server.messages.empty()
    finally:
        net.close()


def test_whoever_only_connects_costs_no_cpu(net: Net) -> None:
    """The server's first words wait for the client's: for these, and not for room to write."""
    with socket.create_connection(("127.0.0.1", net.listener.port)):
        turns = 0
        turn = net.loop._turn

        def counted() -> None:
            nonlocal turns
            turns += 1
            turn()

        net.loop._turn = counted  # type: ignore[method-assign]
        assert not threading.Event().wait(0.3)
        assert turns < 20


def test_credentials_are_not_shown() -> None:
    assert repr(OURS) == str(OURS) == "Credentials(***)"
    assert "PRIVATE" not in repr([OURS])


def test_without_the_library_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(ConfigError, match=r"pip install 'penstock\[tls\]'"):
        Credentials.generate()


def test_a_query_with_a_killed_slot_is_exact_over_tls(tmp_path: Path, launcher: ProcessLauncher) -> None:
    graph = tiny_graph(tmp_path / "out", 2, Numbers(30_000, rate=10_000))
    query = run(graph, tmp_path / "chk", launcher, network_tls=True)
    view = query.until(lambda v: v.committed_epoch > 0, what="a commit")
    os.kill(view.slots[0].pid, signal.SIGKILL)
    query.until_running(2)
    query.execution.process_all_available(30)
    query.execution.stop()
    assert_exact(tmp_path / "out", 30_000)
