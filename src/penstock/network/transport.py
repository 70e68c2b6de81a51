"""Transport: one thread per process owns all sockets, links, handshakes, listeners and time-outs.

Other threads only append: ``Link.send`` and ``IoLoop.call`` never block. The queue of a link is bounded by the credit
of its channels and by the small number of control messages in flight.
"""

from __future__ import annotations

import errno
import heapq
import itertools
import selectors
import socket
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from penstock.errors import GenerationFailed, PenstockError, ResourceError
from penstock.logs import daemon_thread, get_logger
from penstock.network.frames import (
    MAX_MESSAGE_BYTES,
    MAX_STREAMS,
    Bytes,
    FrameReader,
    FrameWriter,
    Message,
    MessageKind,
)
from penstock.network.handshake import (
    HANDSHAKE_BYTES,
    HANDSHAKE_LIMIT,
    HANDSHAKE_TIMEOUT_S,
    ClientHandshake,
    Identity,
    ServerHandshake,
)
from penstock.network.tls import Contexts, MustReadFirst, TlsSocket

log = get_logger(__name__)

_WRITE_BYTES = 1 << 20
_WRITE_PARTS = 64
_READS_PER_TURN = 16
"""Maximum number of receive calls per link before other links get their turn."""
ANY_PORT = range(1)
"""Port 0: the system chooses a free port."""
MAX_UNAUTHENTICATED = 64
"""Maximum number of connections in their handshake at one listener."""
MAX_UNAUTHENTICATED_PER_ADDRESS = 32
"""Maximum number of connections in their handshake from one address. One address cannot use up the whole limit."""
GRACE_S = 1.0
"""Minimum age of a connection in its handshake before it may be closed to make room for the next one.

A Penstock peer needs only milliseconds.
"""
ROOM_POLL_S = 0.05


class IoLoop:
    """A selector with its own thread. Every registered handler is called on that thread.

    Args:
        on_crash: called if a handler raises an exception. The loop then ends and closes the selector.
    """

    def __init__(self, name: str, on_crash: Callable[[BaseException], None]) -> None:
        self._on_crash = on_crash
        self._selector = selectors.DefaultSelector()
        self._calls: deque[Callable[[], None]] = deque()
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._wake_in, self._wake_out = socket.socketpair()
        self._wake_in.setblocking(False)
        self._wake_out.setblocking(False)
        self._selector.register(self._wake_out, selectors.EVENT_READ, self._drain_wakes)
        self._woken = False
        self._stopping = False
        self.thread = daemon_thread(self._run, name)

    def start(self) -> None:
        self.thread.start()

    def stop(self, timeout_s: float = 1.0) -> None:
        """End the thread after executing all earlier calls. All links must be closed before."""
        self.call(self._stop)
        if self.thread.is_alive():
            self.thread.join(timeout_s)

    def _stop(self) -> None:
        self._stopping = True

    def call(self, function: Callable[[], None]) -> None:
        """Run ``function`` soon on the loop's thread, in the order of the calls. Any thread may call it."""
        self._calls.append(function)
        if not self._woken:  # cleared before the calls are taken, so that none is missed
            self._woken = True
            self._wake()

    def _wake(self) -> None:
        try:
            self._wake_in.send(b"\0")
        except BlockingIOError:
            return  # enough bytes are waiting there already
        except OSError:
            log.debug("the loop %s is closed", self.thread.name)

    def call_later(self, delay_s: float, function: Callable[[], None]) -> None:
        """Run ``function`` after a delay. Only the loop's thread may call it."""
        heapq.heappush(self._timers, (time.monotonic() + delay_s, next(self._numbers), function))

    def watch(self, sock: socket.socket, events: int, handler: Callable[[int], None]) -> None:
        """Call ``handler(events)`` when the socket is ready. Call it again to change the events."""
        if sock in self._selector.get_map():
            self._selector.modify(sock, events, handler)
        else:
            self._selector.register(sock, events, handler)

    def forget(self, sock: socket.socket) -> None:
        if sock.fileno() >= 0 and sock in self._selector.get_map():
            self._selector.unregister(sock)

    def _drain_wakes(self, events: int) -> None:
        try:
            while self._wake_out.recv(4096):
                continue
        except BlockingIOError:
            return

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._turn()
        except Exception as problem:  # noqa: BLE001 - whatever it is, the process must not go on without its sockets
            self._on_crash(problem)
        finally:
            self._selector.close()
            self._wake_in.close()
            self._wake_out.close()

    def _turn(self) -> None:
        timeout = None if not self._timers else max(0.0, self._timers[0][0] - time.monotonic())
        for key, events in self._selector.select(0 if self._calls else timeout):
            key.data(events)
        self._woken = False
        for _ in range(len(self._calls)):
            self._calls.popleft()()
        while self._timers and self._timers[0][0] <= time.monotonic():
            heapq.heappop(self._timers)[2]()


class Link:
    """One connection: a handshake, then messages in both directions until either side closes it.

    The callbacks run on the loop's thread. ``on_close`` is called exactly once, with the error that ended the link. The
    error is None if this side closed the link without one. With ``tls`` the link is encrypted.
    """

    def __init__(
        self,
        loop: IoLoop,
        sock: socket.socket,
        handshake: ServerHandshake | ClientHandshake,
        on_open: Callable[[Link, Identity], None],
        on_message: Callable[[Message], None],
        on_close: Callable[[Link, PenstockError | None], None],
        tls: Contexts | None = None,
    ) -> None:
        self._loop = loop
        self._handshake = handshake
        self._on_open = on_open
        self.on_message = on_message
        self._on_close = on_close
        self._inbox: deque[tuple[MessageKind, int, Sequence[Bytes | pa.Buffer]]] = deque()
        self._reader = FrameReader(HANDSHAKE_LIMIT, streams=1)
        self._unknown_bytes = 0
        self._writer = FrameWriter()
        self._unsent: deque[memoryview] = deque()
        self._flush_called = False
        self._writing = False
        self._closing = False
        self.peer: Identity | None = None
        self.closed = False
        sock.setblocking(False)
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._tls = None if tls is None else TlsSocket(sock, tls, isinstance(handshake, ServerHandshake))
        self._sock = sock if self._tls is None else self._tls.socket
        self._bytes: socket.socket | TlsSocket = self._tls or sock
        loop.call(self._begin)

    # -- from any thread ------------------------------------------------------------------------------------------

    def send(self, kind: MessageKind, stream: int, parts: Sequence[Bytes | pa.Buffer]) -> None:
        """Queue one message.

        Messages of one stream arrive in order; after the link is closed they are silently dropped.
        """
        self._inbox.append((kind, stream, parts))
        if not self._flush_called:  # cleared before the inbox is taken, so that nothing is missed
            self._flush_called = True
            self._loop.call(self._flush)

    def close(self) -> None:
        """Close the link after writing the queued messages.

        If the socket does not accept them all at once, the link stays open until they are written.
        """
        self._loop.call(self._close_orderly)

    def abort(self, error: PenstockError | None = None) -> None:
        """Close the link now. ``error`` is passed to ``on_close``."""
        self._loop.call(lambda: self._closed(error))

    # -- on the loop's thread -------------------------------------------------------------------------------------

    def _begin(self) -> None:
        self._loop.watch(self._sock, selectors.EVENT_READ, self._ready)
        self._loop.call_later(HANDSHAKE_TIMEOUT_S, self._handshake_late)
        if self._tls is not None:
            self._receive()  # the TLS client sends first
        opening = self._handshake.start()
        if opening is not None:
            self._writer.push(MessageKind.HANDSHAKE, 0, [opening])
            self._flush()

    def _handshake_late(self) -> None:
        if self.peer is None and not self.closed:
            self._closed(GenerationFailed(f"the peer did not finish its handshake within {HANDSHAKE_TIMEOUT_S:.0f} s"))

    def _ready(self, events: int) -> None:
        if events & selectors.EVENT_WRITE:
            self._flush()
        if events & selectors.EVENT_READ and not self.closed:
            self._receive()
            if self._tls is not None and not self.closed:
                self._flush()  # the write may have waited for the received bytes

    def _receive(self) -> None:
        if self.closed:
            return None
        try:
            for _ in range(_READS_PER_TURN):
                count = self._bytes.recv_into(self._reader.writable())
                if count == 0:
                    return self._closed(GenerationFailed("the link was closed by the other side"))
                for message in self._reader.received(count):
                    self._deliver(message)
                    if self.closed:
                        return None
                if self.peer is None:
                    self._unknown_bytes += count
                    if self._unknown_bytes > HANDSHAKE_BYTES:
                        return self._closed(GenerationFailed(f"the peer's handshake has over {HANDSHAKE_BYTES} bytes"))
            if self._tls is not None and self._tls.pending():
                self._loop.call(self._receive)  # no selector reports bytes that are already decrypted
        except BlockingIOError:
            return None
        except OSError as problem:
            self._closed(GenerationFailed(f"the link broke: {problem}"))
        except PenstockError as problem:
            self._closed(problem)
        except Exception as problem:
            if self.peer is not None:
                raise
            log.exception("an unauthenticated peer caused an unexpected error")  # only its own link ends
            self._closed(GenerationFailed(f"the handshake failed: {type(problem).__name__}"))
        return None

    def _deliver(self, message: Message) -> None:
        if self.peer is not None:
            return self.on_message(message)
        if message.kind is not MessageKind.HANDSHAKE:
            raise GenerationFailed("the other side sent data before its handshake")
        step = self._handshake.receive(message.body.to_pybytes())
        if step.send is not None:
            self._writer.push(MessageKind.HANDSHAKE, 0, [step.send])
            self._flush()
        if step.refused is not None:
            raise GenerationFailed(f"link refused: {step.refused}")
        if step.peer is not None:
            self.peer = step.peer
            self._reader.limit, self._reader.streams = MAX_MESSAGE_BYTES, MAX_STREAMS
            self._on_open(self, step.peer)
        return None

    def _flush(self) -> None:
        self._flush_called = False
        if self.closed:
            self._inbox.clear()
            return
        while self._inbox:
            self._writer.push(*self._inbox.popleft())
        try:
            while self._unsent or self._writer:
                if not self._unsent:
                    self._unsent.extend(memoryview(p).cast("B") for p in self._writer.frames(_WRITE_BYTES))
                sent = self._bytes.sendmsg(list(itertools.islice(self._unsent, _WRITE_PARTS)))
                self._drop_sent(sent)
        except BlockingIOError as wait:
            self._want_to_write(not isinstance(wait, MustReadFirst))
            return
        except OSError as problem:
            self._closed(GenerationFailed(f"the link broke: {problem}"))
            return
        self._want_to_write(False)
        if self._closing:
            self._closed(None)

    def _want_to_write(self, writing: bool) -> None:
        if writing != self._writing:
            self._writing = writing
            self._loop.watch(self._sock, selectors.EVENT_READ | (selectors.EVENT_WRITE if writing else 0), self._ready)

    def _drop_sent(self, sent: int) -> None:
        while sent:
            head = self._unsent[0]
            if head.nbytes <= sent:
                sent -= head.nbytes
                self._unsent.popleft()
            else:
                self._unsent[0] = head[sent:]
                return

    def _close_orderly(self) -> None:
        self._closing = True
        self._flush()

    def _closed(self, error: PenstockError | None) -> None:
        if self.closed:
            return
        self.closed = True
        self._loop.forget(self._sock)
        self._sock.close()
        self._unsent.clear()
        self._inbox.clear()
        self._on_close(self, None if self._closing else error)


@dataclass(frozen=True)
class _Unknown:
    """A connection in its handshake."""

    link: Link
    address: str
    since_s: float


class Listener:
    """Accepts links. It listens from its creation; connections wait in the kernel's backlog until ``accept`` is called.

    The number of unauthenticated connections is limited to ``MAX_UNAUTHENTICATED``, and per address to
    ``MAX_UNAUTHENTICATED_PER_ADDRESS``. When a limit is reached, the oldest connection is closed if it is older than
    ``GRACE_S``; otherwise the next connection waits. If the new connection's address has reached its limit, a
    connection of the same address is closed; otherwise one of the address with most connections.

    Raises:
        ResourceError: all of ``ports`` are in use, or ``host`` is not an address of this machine.
    """

    def __init__(self, loop: IoLoop, host: str, ports: range = ANY_PORT) -> None:
        self._loop = loop
        self._sock = _listen(host, ports)
        self._sock.setblocking(False)
        self.port: int = self._sock.getsockname()[1]
        self._closed = False
        self._unknown: list[_Unknown] = []
        self._next: tuple[socket.socket, str] | None = None

    def accept(self, make_link: Callable[[socket.socket], Link]) -> None:
        """Pass each connection from now on to ``make_link``, on the loop's thread."""
        self._loop.call(lambda: self._watch(make_link))

    def _watch(self, make_link: Callable[[socket.socket], Link]) -> None:
        def ready(events: int) -> None:
            try:
                sock, peer = self._sock.accept()
            except OSError:
                log.debug("a connection was gone before it was accepted")
                return
            self._next = (sock, str(peer[0]))
            wait_for_room()

        def wait_for_room() -> None:
            if self._closed or self._next is None:
                return
            sock, address = self._next
            if not self._has_room(address):
                self._loop.forget(self._sock)
                self._loop.call_later(ROOM_POLL_S, wait_for_room)
                return
            self._next = None
            self._unknown.append(_Unknown(make_link(sock), address, time.monotonic()))
            self._loop.watch(self._sock, selectors.EVENT_READ, ready)

        if not self._closed:
            self._loop.watch(self._sock, selectors.EVENT_READ, ready)

    def _has_room(self, address: str) -> bool:
        """Return True if there is room, if necessary after closing an old connection."""
        self._unknown = [one for one in self._unknown if one.link.peer is None and not one.link.closed]
        crowd = Counter(one.address for one in self._unknown)
        if crowd[address] < MAX_UNAUTHENTICATED_PER_ADDRESS:
            if len(self._unknown) < MAX_UNAUTHENTICATED:
                return True
            address = crowd.most_common(1)[0][0]
        oldest = next(one for one in self._unknown if one.address == address)
        if time.monotonic() - oldest.since_s < GRACE_S:
            return False
        oldest.link.abort(GenerationFailed(f"{oldest.address} has too many connections without a handshake"))
        self._unknown.remove(oldest)
        return True

    def close(self) -> None:
        """Stop listening. Any thread may call it."""
        self._loop.call(self._close)

    def _close(self) -> None:
        self._closed = True
        self._loop.forget(self._sock)
        self._sock.close()
        if self._next is not None:
            self._next[0].close()


def _listen(host: str, ports: range) -> socket.socket:
    """Listen on the first free port of ``ports``."""
    problem: OSError | None = None
    for port in ports:
        try:
            return socket.create_server((host, port), backlog=MAX_UNAUTHENTICATED)
        except OSError as error:
            problem = error
            if error.errno != errno.EADDRINUSE:
                break
    tried = "a port" if ports == ANY_PORT else f"ports {ports.start} to {ports.stop - 1}"
    raise ResourceError(
        f"cannot listen on {tried} of {host}: {problem}; see spark.penstock.driver.port, spark.penstock.slot.port and "
        "Spark's own spark.driver.bindAddress and SPARK_LOCAL_IP"
    ) from problem


def check_free(host: str, ports: range) -> None:
    """Raise ResourceError if no port can be used for listening now."""
    _listen(host, ports).close()


def connect(host: str, port: int, timeout_s: float) -> socket.socket:
    """Return a TCP connection. Blocks, so it must not be called on the loop's thread.

    Raises:
        GenerationFailed: the connection cannot be opened.
    """
    try:
        return socket.create_connection((host, port), timeout=timeout_s)
    except OSError as problem:
        raise GenerationFailed(f"cannot connect to {host}:{port}: {problem}") from problem
