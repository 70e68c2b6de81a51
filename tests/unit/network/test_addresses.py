"""Listening addresses of slots and the driver."""

from __future__ import annotations

import socket

import pytest

from penstock.config import parse_options
from penstock.coordinator.rendezvous import peers_of
from penstock.errors import ConfigError, GenerationFailed, ResourceError
from penstock.network.messages import Register
from penstock.network.transport import IoLoop, Listener


def registered(*hosts: str) -> dict[int, Register]:
    return {slot: Register(slot, 1, "v", 100 + slot, host, 4000 + slot) for slot, host in enumerate(hosts)}


def test_peers_are_told_in_the_order_of_slots() -> None:
    backwards = dict(reversed(registered("a", "b", "a").items()))
    assert peers_of(backwards) == [("a", 4000), ("b", 4001), ("a", 4002)]
    assert peers_of(registered("127.0.0.1", "127.0.0.1")) == [("127.0.0.1", 4000), ("127.0.0.1", 4001)]


@pytest.mark.parametrize("loopback", ["127.0.0.1", "127.0.1.1", "localhost"])
def test_a_slot_that_only_its_own_machine_reaches_is_named(loopback: str) -> None:
    with pytest.raises(GenerationFailed, match=f"reached at {loopback} only, others run on 10.0.0.2: .*SPARK_LOCAL_IP"):
        peers_of(registered("10.0.0.2", loopback))


@pytest.mark.parametrize(
    ("text", "range_"), [("0", range(1)), ("4040", range(4040, 4041)), (" 40000 - 40099 ", range(40000, 40100))]
)
def test_ports_are_a_number_or_a_range(text: str, range_: range) -> None:
    options = parse_options({"driver.port": text, "slot.port": text})
    assert options.driver_ports == options.slot_ports == range_


@pytest.mark.parametrize("text", ["", "any", "-1", "0-9", "9-8", "65536", "1-2-3"])
def test_other_ports_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"spark\.penstock\.slot\.port=.*40000-40099"):
        parse_options({"slot.port": text})


def test_a_listener_takes_the_first_free_port_of_its_range() -> None:
    loop = IoLoop("penstock-test-io", lambda problem: None)
    loop.start()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            ResourceError, match=rf"ports {port} to {port} of 127\.0\.0\.1: .*spark\.penstock\.slot\.port"
        ):
            Listener(loop, "127.0.0.1", range(port, port + 1))
        try:
            listener = Listener(loop, "127.0.0.1", range(port, port + 50))
            assert port < listener.port < port + 50
            listener.close()
        finally:
            loop.stop()


def test_an_address_of_another_machine_cannot_be_listened_on() -> None:
    with pytest.raises(ResourceError, match=r"cannot listen on a port of 192\.0\.2\.1: .*bindAddress"):
        Listener(IoLoop("penstock-test-io", lambda problem: None), "192.0.2.1")
