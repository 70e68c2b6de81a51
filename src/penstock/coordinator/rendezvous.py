"""Control server: the driver's end of the control links of one generation."""

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
class SlotMessageReceived:
    """A registered slot sent a message; ``Register`` is the first. ``task_number``: index of its Spark task."""

    generation: int
    task_number: int
    message: ToDriver


@dataclass(frozen=True)
class SlotLost:
    """Reports that the link of a registered slot broke."""

    generation: int
    task_number: int
    reason: str


@dataclass
class _TaskLink:
    link: Link
    registered: bool = False


class ControlServer:
    """Control server of one generation; listens from its creation on.

    It addresses slots by the number of their Spark task, because the number of a slot is assigned only after all tasks
    have registered.

    Args:
        host: address to bind to.
        ports: it listens on the first free one; ResourceError if none is free.
        tls: contexts that encrypt the links; None: the links are not encrypted.
        on_event: called on the loop's thread, in order per slot. A few calls may follow ``close``, which only requests
            the end; their events carry the generation.
    """

    def __init__(
        self,
        loop: IoLoop,
        host: str,
        secret: Secret,
        generation: int,
        parallelism: int,
        on_event: Callable[[SlotMessageReceived | SlotLost], None],
        ports: range = ANY_PORT,
        tls: Contexts | None = None,
    ) -> None:
        self._loop = loop
        self._tls = tls
        self._secret = secret
        self._generation = generation
        self._parallelism = parallelism
        self._on_event = on_event
        self._links: dict[int, _TaskLink] = {}
        self._closed = False
        self._refusals = SparingLog(log)
        self._listener = Listener(loop, host, ports)
        self.port = self._listener.port
        self._listener.accept(self._accept)

    def send(self, task_number: int, message: ToSlot) -> None:
        """Send a message to the slot of a task.

        Any thread may call it. Dropped if the link broke (see ``SlotLost``).
        """
        task = self._links.get(task_number)
        if task is not None:
            send(task.link, message)

    def close(self) -> None:
        """Close the port and all links. Slots that still run end at once. Any thread may call it."""
        self._loop.call(self._close)

    def _close(self) -> None:
        self._closed = True
        self._listener.close()
        for task in self._links.values():
            task.link.close()

    def _accept(self, sock: socket.socket) -> Link:
        def opened(link: Link, identity: Identity) -> None:
            if not 0 <= identity.slot < self._parallelism or identity.slot in self._links:
                raise GenerationFailed(f"task {identity.slot} is registered already, or does not exist")
            self._links[identity.slot] = _TaskLink(link)
            link.on_message = lambda message: self._message(identity.slot, message)

        handshake = ServerHandshake(self._secret, "control", self._generation, nonce())
        return Link(self._loop, sock, handshake, opened, lambda message: None, self._link_closed, self._tls)

    def _message(self, task_number: int, message: Message) -> None:
        decoded = read_from_slot(message)
        task = self._links[task_number]
        if not task.registered and not isinstance(decoded, Register):
            raise GenerationFailed(f"task {task_number} sent {type(decoded).__name__} before it registered")
        task.registered = True
        if not self._closed:
            self._on_event(SlotMessageReceived(self._generation, task_number, decoded))

    def _link_closed(self, link: Link, error: PenstockError | None) -> None:
        task_number = next((number for number, task in self._links.items() if task.link is link), None)
        if task_number is None:
            self._refusals.warning("a connection to the control port was refused: %s", error)
        elif not self._closed:
            self._on_event(SlotLost(self._generation, task_number, str(error)))


def peers_of(registered: Mapping[int, Register]) -> list[tuple[str, int]]:
    """Return the addresses at which slots listen for each other, by slot.

    Raises:
        GenerationFailed: some slots listen on a loopback address while others run on other machines.
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
