"""The driver's side of the control links of one Generation: slots come, speak and go."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from penstock.errors import GenerationFailed, PenstockError
from penstock.logs import SparingLog, get_logger
from penstock.network.control_link import read_from_slot, send
from penstock.network.frames import Message
from penstock.network.handshake import Identity, ServerHandshake
from penstock.network.messages import Register, ToDriver, ToSlot
from penstock.network.secret import Secret, nonce
from penstock.network.tls import Contexts
from penstock.network.transport import ANY_PORT, IoLoop, Link, Listener

log = get_logger(__name__)


@dataclass(frozen=True)
class SlotSaid:
    """A registered slot sent a message; its ``Register`` is the first. ``seat``: the number of its task."""

    generation: int
    seat: int
    message: ToDriver


@dataclass(frozen=True)
class SlotLost:
    """The link of a registered slot is gone."""

    generation: int
    seat: int
    reason: str


@dataclass
class _Seat:
    link: Link
    registered: bool = False


class ControlServer:
    """Listens from its creation on. Knows tasks by their number, a *seat*: which slot takes it is decided when all are
    there.

    Args:
        host: what it binds to.
        ports: one of these is taken; ResourceError if none is free.
        tls: links are encrypted.
        on_event: called on the loop's thread, in order per slot; not called any more once ``close`` has returned from
            the loop's point of view (a few events may still come meanwhile: they carry their Generation).
    """

    def __init__(
        self,
        loop: IoLoop,
        host: str,
        secret: Secret,
        generation: int,
        parallelism: int,
        on_event: Callable[[SlotSaid | SlotLost], None],
        ports: range = ANY_PORT,
        tls: Contexts | None = None,
    ) -> None:
        self._loop = loop
        self._tls = tls
        self._secret = secret
        self._generation = generation
        self._parallelism = parallelism
        self._on_event = on_event
        self._seats: dict[int, _Seat] = {}
        self._closed = False
        self._refusals = SparingLog(log)
        self._listener = Listener(loop, host, ports)
        self.port = self._listener.port
        self._listener.accept(self._accept)

    def send(self, seat: int, message: ToSlot) -> None:
        """From any thread; lost silently if the slot is gone (``SlotLost`` tells)."""
        known = self._seats.get(seat)
        if known is not None:
            send(known.link, message)

    def close(self) -> None:
        """Close the port and all links: slots that still run end at once. From any thread."""
        self._loop.call(self._close)

    def _close(self) -> None:
        self._closed = True
        self._listener.close()
        for seat in self._seats.values():
            seat.link.close()

    def _accept(self, sock: socket.socket) -> Link:
        def opened(link: Link, identity: Identity) -> None:
            if not 0 <= identity.slot < self._parallelism or identity.slot in self._seats:
                raise GenerationFailed(f"task {identity.slot} is registered already, or does not exist")
            self._seats[identity.slot] = _Seat(link)
            link.on_message = lambda message: self._message(identity.slot, message)

        handshake = ServerHandshake(self._secret, "control", self._generation, nonce())
        return Link(self._loop, sock, handshake, opened, lambda message: None, self._link_closed, self._tls)

    def _message(self, seat: int, message: Message) -> None:
        decoded = read_from_slot(message)
        known = self._seats[seat]
        if not known.registered and not isinstance(decoded, Register):
            raise GenerationFailed(f"task {seat} sent {type(decoded).__name__} before it registered")
        known.registered = True
        if not self._closed:
            self._on_event(SlotSaid(self._generation, seat, decoded))

    def _link_closed(self, link: Link, error: PenstockError | None) -> None:
        seat = next((number for number, known in self._seats.items() if known.link is link), None)
        if seat is None:
            self._refusals.warning("a connection to the control port was refused: %s", error)
        elif not self._closed:
            self._on_event(SlotLost(self._generation, seat, str(error)))


def peers_of(registered: Mapping[int, Register]) -> list[tuple[str, int]]:
    """Where each slot listens for the others, by slot.

    Raises:
        GenerationFailed: some can be reached from their own machine only.
    """
    peers = [(register.data_host, register.data_port) for _, register in sorted(registered.items())]
    hosts = {host for host, _ in peers}
    lonely = sorted(host for host in hosts if host == "localhost" or host.startswith("127."))
    if lonely and len(lonely) < len(hosts):
        others = ", ".join(sorted(hosts - set(lonely)))
        raise GenerationFailed(
            f"a slot can be reached at {lonely[0]} only, others run on {others}: give each worker an address of the "
            "network with SPARK_LOCAL_IP (the machine's own name may stand for a loopback address in /etc/hosts)"
        )
    return peers
