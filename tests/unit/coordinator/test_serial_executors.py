"""Threads of the driver: what is still done when it stops."""

from __future__ import annotations

import threading

from penstock.coordinator.serial_executors import SerialExecutors


def test_kept_jobs_are_done_when_the_lanes_stop_and_others_are_dropped() -> None:
    lanes, done, begun, go_on = SerialExecutors("test"), list[str](), threading.Event(), threading.Event()

    def first() -> None:
        begun.set()
        go_on.wait(20)
        done.append("running")

    lanes.put("source 0", first)
    lanes.put("source 0", lambda: done.append("dropped"))
    lanes.put("source 0", lambda: done.append("kept"), kept=True)
    lanes.put("news", lambda: done.append("news"))
    assert begun.wait(20)
    stopping = threading.Thread(target=lambda: lanes.stop(20, finish="news"))
    stopping.start()
    while not lanes._dropping:
        stopping.join(0.001)
    go_on.set()
    stopping.join(20)
    assert [name for name in done if name != "news"] == ["running", "kept"]
    assert "news" in done
