"""Inputs without watermarks beside others: they hold nothing back but the end of event time."""

from __future__ import annotations

from penstock.model.elements import END_OF_TIME_US, Element, EndOfPartition, Watermark
from penstock.model.ids import ChannelId, GenerationId
from penstock.protocol.gate import InputGate, WatermarkRose
from penstock.protocol.input import InputChannel
from tests.support.protocol.channel_world import nothing_recovered

TIMED, OTHER, UNTIMED = ChannelId(0, 0, 0), ChannelId(1, 0, 0), ChannelId(2, 0, 0)


def gate_of(*channels: ChannelId, restored: dict[ChannelId, int] | None = None) -> InputGate:
    inputs = [InputChannel(each, GenerationId(1), 64, (restored or {}).get(each)) for each in channels]
    return InputGate("gate", inputs, 1024, 64, nothing_recovered(), untimed={UNTIMED.edge})


def hear(gate: InputGate, channel: ChannelId, element: Element) -> int | None:
    """The watermark that the gate rises to with it."""
    gate.arrive(channel, element)
    consumed = [*iter(lambda: gate.poll(1), None), gate.risen()]  # asked for at the end of a channel, too
    gate.check_invariants()
    return next((rose.timestamp_us for rose in consumed if isinstance(rose, WatermarkRose)), None)


def test_the_least_of_the_timed_inputs_rules() -> None:
    gate = gate_of(TIMED, OTHER, UNTIMED)
    assert hear(gate, TIMED, Watermark(50)) is None
    assert hear(gate, OTHER, Watermark(20)) == 20
    assert hear(gate, OTHER, Watermark(90)) == 50
    assert hear(gate_of(TIMED, UNTIMED, restored={TIMED: 7}), TIMED, Watermark(9)) == 9


def test_event_time_does_not_end_before_all_have_ended() -> None:
    gate = gate_of(TIMED, UNTIMED)
    assert hear(gate, TIMED, Watermark(50)) == 50
    assert hear(gate, TIMED, Watermark(END_OF_TIME_US)) is None, "rows may come by the other one"
    assert gate.watermark_us == 50
    assert hear(gate, UNTIMED, Watermark(END_OF_TIME_US)) == END_OF_TIME_US


def test_the_timed_input_may_be_the_last_to_end() -> None:
    gate = gate_of(TIMED, UNTIMED)
    assert hear(gate, UNTIMED, Watermark(END_OF_TIME_US)) is None
    assert hear(gate, UNTIMED, EndOfPartition()) is None
    assert hear(gate, TIMED, Watermark(50)) == 50
    assert hear(gate, TIMED, Watermark(END_OF_TIME_US)) == END_OF_TIME_US


def test_an_untimed_input_that_has_ended_without_a_word_holds_nothing_back() -> None:
    gate = gate_of(TIMED, UNTIMED)
    assert hear(gate, UNTIMED, EndOfPartition()) is None
    assert hear(gate, TIMED, Watermark(END_OF_TIME_US)) == END_OF_TIME_US


def test_untimed_inputs_alone_rise_with_the_end_of_event_time() -> None:
    gate = gate_of(UNTIMED)
    assert gate.watermark_us is None
    assert hear(gate, UNTIMED, Watermark(END_OF_TIME_US)) == END_OF_TIME_US
