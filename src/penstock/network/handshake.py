"""Handshake of a link: challenge and response with the per-job secret, then a check of generation and version.

::

    server                              client
      Challenge(version, nonce)  --->
                                 <---   Hello(version, generation, role, slot, nonce, mac)
      Welcome(mac) or Refused    --->

Each side proves that it knows the secret by authenticating the other's new nonce; the secret itself is never sent. Both
sides are pure state machines that take message bodies and return message bodies. No message larger than
``HANDSHAKE_LIMIT`` is read before the handshake ends.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from penstock.decoding import msgpack_decoder
from penstock.network.frames import PROTOCOL_VERSION
from penstock.network.secret import NONCE_BYTES, Secret
from penstock.plain_text import visible

HANDSHAKE_LIMIT = 1 << 10
HANDSHAKE_TIMEOUT_S = 10.0
HANDSHAKE_BYTES = 16 << 10
"""Maximum bytes read from a peer before it is authenticated, including frame headers.

It allows one message of ``HANDSHAKE_LIMIT`` bytes in fragments of one byte each.
"""


class Challenge(msgspec.Struct, frozen=True, tag=True):
    version: str
    nonce: bytes


class Hello(msgspec.Struct, frozen=True, tag=True):
    version: str
    generation: int
    role: str
    slot: int
    nonce: bytes
    mac: bytes


class Welcome(msgspec.Struct, frozen=True, tag=True):
    mac: bytes


class Refused(msgspec.Struct, frozen=True, tag=True):
    reason: str


_Body = Challenge | Hello | Welcome | Refused
_decoder = msgpack_decoder(_Body)
_encode = msgspec.msgpack.encode


@dataclass(frozen=True)
class Identity:
    """Identity that a client claims.

    ``role`` is ``control`` or ``data``. On control links ``slot`` is the index of the Spark task.
    """

    role: str
    generation: int
    slot: int


@dataclass(frozen=True)
class Step:
    """Result of one message body: bytes to send, and at the end the peer's identity or the reason for a refusal."""

    send: bytes | None = None
    peer: Identity | None = None
    refused: str | None = None


def _parts(identity: Identity, version: str) -> tuple[bytes, ...]:
    return version.encode(), identity.role.encode(), str(identity.generation).encode(), str(identity.slot).encode()


def _decode(body: bytes) -> _Body | None:
    try:
        message: _Body = _decoder.decode(body)
        return message
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


class ServerHandshake:
    """Accepting side. ``nonce`` must be new and random."""

    def __init__(self, secret: Secret, role: str, generation: int, nonce: bytes) -> None:
        self._secret = secret
        self._role = role
        self._generation = generation
        self._nonce = nonce

    def start(self) -> bytes | None:
        return _encode(Challenge(PROTOCOL_VERSION, self._nonce))

    def receive(self, body: bytes) -> Step:
        hello = _decode(body)
        if not isinstance(hello, Hello) or len(hello.nonce) != NONCE_BYTES:
            return self._refuse("this is no Penstock handshake")
        if hello.version != PROTOCOL_VERSION:
            return self._refuse(
                f"Penstock {visible(hello.version)} cannot speak to {PROTOCOL_VERSION}: use one release everywhere"
            )
        peer = Identity(hello.role, hello.generation, hello.slot)
        if not self._secret.verify(hello.mac, b"client", self._nonce, hello.nonce, *_parts(peer, hello.version)):
            return self._refuse("wrong secret")
        if peer.generation != self._generation:
            return self._refuse(f"Generation {peer.generation} is over; this is Generation {self._generation}")
        if peer.role != self._role:
            return self._refuse(f"a {visible(peer.role)} link was opened where {self._role} links are accepted")
        welcome = Welcome(self._secret.mac(b"server", self._nonce, hello.nonce, *_parts(peer, hello.version)))
        return Step(send=_encode(welcome), peer=peer)

    def _refuse(self, reason: str) -> Step:
        return Step(send=_encode(Refused(reason)), refused=reason)


class ClientHandshake:
    """Connecting side. ``nonce`` must be new and random."""

    def __init__(self, secret: Secret, identity: Identity, nonce: bytes) -> None:
        self._secret = secret
        self._identity = identity
        self._nonce = nonce
        self._server_nonce: bytes | None = None

    def start(self) -> bytes | None:
        return None

    def receive(self, body: bytes) -> Step:
        message = _decode(body)
        parts = _parts(self._identity, PROTOCOL_VERSION)
        if isinstance(message, Challenge) and self._server_nonce is None and len(message.nonce) == NONCE_BYTES:
            self._server_nonce = message.nonce
            mac = self._secret.mac(b"client", message.nonce, self._nonce, *parts)
            me = self._identity
            return Step(send=_encode(Hello(PROTOCOL_VERSION, me.generation, me.role, me.slot, self._nonce, mac)))
        if isinstance(message, Refused):
            return Step(refused=f"the other side refused: {visible(message.reason)}")
        if isinstance(message, Welcome) and self._server_nonce is not None:
            if self._secret.verify(message.mac, b"server", self._server_nonce, self._nonce, *parts):
                return Step(peer=self._identity)
            return Step(refused="the other side does not know the secret")
        return Step(refused="the other side does not speak Penstock's handshake")
