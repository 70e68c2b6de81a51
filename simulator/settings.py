"""Settings of one schedule: the job, its options and its faults; everything except the interleaving.

``Settings.random(seed)`` draws them, a test may write them down, and the shrinker makes them smaller: any smaller value
is legal. They are plain data and survive JSON (``msgspec.json``).
"""

from __future__ import annotations

from random import Random

import msgspec

from penstock.config import Options, TriggerOn
from penstock.coordinator.machines.checkpoint_events import CheckpointPolicy
from penstock.model.elements import Alignment
from penstock.model.job_graph import ONE_CLOCK
from simulator.jobs.rows import KEY, ROW_BYTES, TIME
from simulator.jobs.topology import KEYED, NEW_EDGE, Edit, Node, draw_nodes, with_volume

FAULT_STEPS = 1_500
"""Faults come within so many steps, about as long as a schedule takes without any."""

FAULT_KINDS = (
    "slot crash",
    "driver crash",
    "slot and driver crash",
    "second driver",
    "slot crash in effect",
    "driver crash in effect",
    "crash in recovery",
    "slow subtask",
    "blocked sinks",
    "link delay",
    "link disconnect",
    "slow store",
    "store fails",
    "store lies",
    "log fails",
    "log lies",
    "torn file",
    "flipped byte",
    "answer late",
    "answer twice",
    "answer lost",
    "slot declines",
    "user error",
    "commit fails",
    "commit unknown",
)
"""What may go wrong. An *answer*: a slot's acknowledgement or decline; *lies*: it happened, but is reported failed."""
ROLLBACK = "rollback"
"""Rollback of the query to an older snapshot by a user. It is a fault that is drawn separately."""


COMMANDS = ("take", "take", "delete", "delete", "gc", "forced delete", "forced gc", "stop", "stop")


class Fault(msgspec.Struct, frozen=True):
    """Fault, one of ``FAULT_KINDS``, at a step of the schedule; its place is random."""

    kind: str
    step: int


class UserSnapshot(msgspec.Struct, frozen=True):
    """Request of a user for a snapshot at this step; ``alignment`` by its value."""

    alignment: str
    step: int


class UserCommand(msgspec.Struct, frozen=True):
    """A user runs one of ``COMMANDS`` at this step: a command of ``penstock snapshot``, or ``stop`` with a snapshot.

    ``drained stop``: with nothing in flight. ``declined drain``: the same, but a slot cannot write it.
    """

    kind: str
    step: int


class Settings(msgspec.Struct, frozen=True):
    """Settings of one schedule. Times in (virtual) milliseconds, sizes in bytes; a row is 32 bytes.

    Attributes:
        nodes: in topological order; a node's position is its vertex id.
        keys, skew: number of keys; the fraction ``skew`` of all rows has the first one.
        window_ms: length of event-time windows; rows of a source are 1 ms apart.
        pace_ms: duration of an action.
        eagerness: weight of subtasks in (0, 1]; less eager ones find more in their inbox.
        bounded: the sources end, and with them the query; otherwise the run ends when all output is visible.
        checks: number of steps between two checks of the machines' expensive invariants.
        allow_older: recovery falls back from a corrupt snapshot to an older one (and the sink is truncated); otherwise
            the file is restored from a copy.
        cold: a completed snapshot is restored from a copy of the location and run to its end.
        until_available: every driver reads what is available when its Generation begins, and ends.
        drain: from this step on users drain every running query.
        endless: each source is one split without an end, whatever ``bounded`` says.
        arrival_ms: approximate time until everything is available (0: from the beginning).
        parallelisms: each Generation has one of these; empty: all have ``parallelism``.
        first_parallelism: of Generations that begin without a snapshot; None: the same as of all others.
        look_ms: duration of a discovery after it has seen the splits.
        cold_parallelism: of the cold restore; None: any.
        clock: ``SourceSpec.clock`` of all sources; empty: each has its own.
        edit: the job that continues from the snapshot of the cold restore is edited like this.
    """

    nodes: tuple[Node, ...]
    parallelism: int = 2
    max_parallelism: int = 8
    keys: int = 5
    skew: float = 0.0
    window_ms: int = 16
    exclusive_window: int = 1 << 20
    memory_per_gate: int = 32 << 20
    flush_interval_ms: int = 5
    inflight_target_ms: int | None = None
    max_inflight_bytes: int | None = None
    capture_memory: int = 512 << 20
    interval_ms: int = 200
    timeout_ms: int = 60_000
    alignment: str = "auto"
    alignment_timeout_ms: int = 20
    min_pause_ms: int = 0
    max_concurrent: int = 1
    tolerable_failures: int | None = None
    trigger_on: str = "firstBarrier"
    retained: int = 2
    pace_ms: float = 0.1
    eagerness: float = 1.0
    bounded: bool = False
    checks: int = 4
    allow_older: bool = False
    cold: bool = True
    faults: tuple[Fault, ...] = ()
    snapshots: tuple[UserSnapshot, ...] = ()
    commands: tuple[UserCommand, ...] = ()
    until_available: bool = False
    drain: int | None = None
    endless: bool = False
    arrival_ms: int = 0
    look_ms: int = 0
    parallelisms: tuple[int, ...] = ()
    first_parallelism: int | None = None
    cold_parallelism: int | None = None
    clock: str = ""
    edit: Edit | None = None

    @property
    def rescales(self) -> bool:
        return bool(self.parallelisms)

    @property
    def most_subtasks(self) -> int:
        """That a vertex ever has."""
        return max(self.parallelism, *self.parallelisms, self.first_parallelism or 1)

    @property
    def may_rescale(self) -> bool:
        """True if the parallelism may change. A broadcast makes one copy per subtask, so the output depends on the
        parallelism unless a join combines the copies.
        """
        return not any(
            inlet.kind == "broadcast" and node.kind != "join" for node in self.nodes for inlet in node.inlets
        )

    @property
    def cut_short(self) -> bool:
        """True if the run ends from outside, so that the amount of input it reads depends on the interleaving."""
        return self.until_available or self.drain is not None

    @property
    def ends(self) -> bool:
        """The query ends by itself at some time."""
        return self.cut_short or (self.bounded and not self.endless)

    @staticmethod
    def random(seed: int) -> Settings:
        """Return the settings of a seed."""
        random = Random(f"settings {seed}")
        drawn = _with_rollback(random, _with_commands(random, _with_rescales(random, _with_end(random, _draw(random)))))
        drawn = _with_partitions(Random(f"partitions {seed}"), _with_late_splits(Random(f"late splits {seed}"), drawn))
        drawn = _with_drained_stops(Random(f"drained stops {seed}"), drawn)
        return _with_edit(Random(f"edit {seed}"), _with_declined_drains(Random(f"declined drains {seed}"), drawn))

    @staticmethod
    def calm(seed: int) -> Settings:
        """Return the same topology without faults, with instant operators that hold no rows and windows that are never
        full. The interval leaves time to assign all splits before the first checkpoint."""
        drawn = Settings.random(seed)
        plain = {"cost_ms": 0.0, "holds": "", "blind": 0, "partitions": 1}
        return Settings(
            nodes=tuple(msgspec.structs.replace(node, **plain) for node in drawn.nodes),
            parallelism=drawn.parallelism,
            max_parallelism=drawn.max_parallelism,
            keys=drawn.keys,
            skew=drawn.skew,
            window_ms=drawn.window_ms,
            alignment="aligned",
            interval_ms=400,
            bounded=drawn.bounded,
        )

    @property
    def rows(self) -> int:
        """Rows that all sources hold."""
        return sum(node.splits * node.rows_per_split for node in self.nodes)

    def options(self) -> Options:
        """Return the options for the slots."""
        return Options(
            max_parallelism=self.max_parallelism,
            checkpoint_trigger_on=TriggerOn(self.trigger_on),
            checkpoint_max_inflight_bytes=self.max_inflight_bytes,
            checkpoint_capture_memory=self.capture_memory,
            memory_per_gate=self.memory_per_gate,
            exclusive_window=self.exclusive_window,
            flush_interval_ms=self.flush_interval_ms,
            inflight_target_ms=self.inflight_target_ms,
        )

    def policy(self) -> CheckpointPolicy:
        """Return the checkpoint policy for the coordinator."""
        return CheckpointPolicy(
            interval_ms=self.interval_ms,
            after_restore_ms=self.interval_ms,
            timeout_ms=self.timeout_ms,
            alignment=Alignment(self.alignment),
            alignment_timeout_ms=self.alignment_timeout_ms,
            min_pause_ms=self.min_pause_ms,
            max_concurrent=self.max_concurrent,
            tolerable_failures=self.tolerable_failures,
        )


def _draw(random: Random) -> Settings:
    parallelism = random.choices((1, 2, 3, 4, 5, 6), (14, 50, 18, 10, 4, 4))[0]
    window_rows = random.choices((1, 2, 8, 32, 128, 10_000), (5, 7, 15, 30, 23, 20))[0]
    window = ROW_BYTES * window_rows
    # A schedule's time is spent on rows, and with small windows or many channels on buffers.
    volume = min(4_900, 280 + 85 * window_rows) * random.uniform(0.7, 1.0) * min(1.0, 3 / parallelism)
    return Settings(
        nodes=_with_costs(random, with_volume(draw_nodes(random), parallelism, volume)),
        parallelism=parallelism,
        max_parallelism=random.choice((8, 16)),
        keys=random.choice((1, 3, 7, 20, 50)),
        skew=random.choice((0.0, 0.0, 0.3, 0.9)),
        window_ms=random.choice((5, 16, 64)),
        exclusive_window=window,
        memory_per_gate=window * parallelism * random.choice((2, 2, 4, 16)),
        flush_interval_ms=random.choice((1, 5, 20)),
        inflight_target_ms=random.choice((None, None, None, 50)),
        max_inflight_bytes=random.choice((None, None, None, None, 2_000)),
        capture_memory=random.choice((512 << 20, 512 << 20, 512 << 20, 4_000)),
        interval_ms=random.choice((30, 60, 120, 240)),
        timeout_ms=random.choice((150, 2_000, 8_000, 8_000)),
        alignment=random.choice(("auto", "auto", "unaligned", "unaligned", "aligned")),
        alignment_timeout_ms=random.choice((0, 5, 20, 100)),
        min_pause_ms=random.choice((0, 0, 0, 50)),
        max_concurrent=random.choice((1, 1, 2, 4, 8)),
        tolerable_failures=random.choice((None, None, None, 0, 2)),
        trigger_on=random.choice(("firstBarrier",) * 5 + ("lastBarrier",)),
        retained=random.choice((1, 2, 3)),
        pace_ms=random.choice((0.02, 0.05, 0.1)),
        eagerness=random.choice((0.15, 0.4, 1.0)),
        bounded=random.random() < 0.4,
        checks=random.choice((1, 8, 32)),
        allow_older=random.random() < 0.5,
        faults=_draw_faults(random),
        snapshots=tuple(
            UserSnapshot(random.choice(("auto", "aligned", "unaligned", "unaligned")), random.randrange(FAULT_STEPS))
            for _ in range(random.choice((0, 0, 1, 2, 5)))
        ),
    )


def _with_end(random: Random, settings: Settings) -> Settings:
    """Some queries are ended from outside. Drawn last, so that everything else is what it was without."""
    kind = random.choices(("", "until available", "drain", "both"), (70, 13, 14, 3))[0]
    if not kind:
        return settings
    return msgspec.structs.replace(
        settings,
        until_available=kind in ("until available", "both"),
        drain=random.randrange(FAULT_STEPS) if kind in ("drain", "both") else None,
        endless=random.random() < 0.3,
        arrival_ms=random.choice((0, 50, 300, 1_000)),
    )


def _with_rescales(random: Random, settings: Settings) -> Settings:
    """Most queries come back at another parallelism each time. Drawn last."""
    if random.random() < 0.3 or not settings.may_rescale:
        return settings
    some = tuple(random.choices((1, 2, 3, 4, 5, 7), (20, 30, 20, 15, 10, 5), k=random.choice((2, 3, 4))))
    return msgspec.structs.replace(settings, parallelisms=some)


def _with_commands(random: Random, settings: Settings) -> Settings:
    """Some queries are managed while they run. Drawn last."""
    if random.random() < 0.75:
        return settings
    count = random.choice((1, 2, 2, 4))
    kinds = [random.choice(COMMANDS) for _ in range(count)]
    commands = tuple(UserCommand(kind, random.randrange(FAULT_STEPS)) for kind in kinds)
    return msgspec.structs.replace(settings, commands=commands)


def _with_drained_stops(random: Random, settings: Settings) -> Settings:
    """Some queries are stopped with nothing in flight. Other drawn settings do not depend on it."""
    if settings.cut_short or random.random() < 0.88:
        return settings
    steps = [random.randrange(FAULT_STEPS) for _ in range(random.choice((1, 1, 2)))]
    return msgspec.structs.replace(
        settings, commands=(*settings.commands, *(UserCommand("drained stop", step) for step in steps))
    )


def _with_declined_drains(random: Random, settings: Settings) -> Settings:
    """Make the snapshot without in-flight data fail in some queries. Other drawn settings do not depend on it."""
    if settings.cut_short or random.random() < 0.95:
        return settings
    command = UserCommand("declined drain", random.randrange(FAULT_STEPS))
    return msgspec.structs.replace(settings, commands=(*settings.commands, command))


def _with_edit(random: Random, settings: Settings) -> Settings:
    """Edit some jobs before their snapshots are restored cold. Other drawn settings do not depend on it."""
    if random.random() < 0.3:
        return settings
    kinds = (("hash", TIME), ("hash", KEY), ("rebalance", KEY), ("forward", KEY), (NEW_EDGE, KEY))
    return msgspec.structs.replace(settings, edit=Edit(*random.choice(kinds)))


def _with_late_splits(random: Random, settings: Settings) -> Settings:
    """Let the splits of some queries come late, and their discoveries take time. Other drawn settings do not depend on
    it."""
    if settings.cut_short or random.random() < 0.75:
        return settings
    return msgspec.structs.replace(settings, arrival_ms=random.choice((300, 1_000)), look_ms=random.choice((0, 20, 60)))


def _with_partitions(random: Random, settings: Settings) -> Settings:
    """Give some queries endless sources with several splits, at most one per subtask. Some read more slowly than rows
    come, and several sources may have one clock. Other drawn settings do not depend on it."""
    if settings.cut_short or settings.rescales or settings.parallelism == 1 or random.random() < 0.5:
        return settings
    partitions = min(random.choice((2, 2, 3, 4)), settings.parallelism)
    arrival_ms = random.choice((0, 300, 1_500, 4_000))
    most = max(node.splits * node.rows_per_split for node in settings.nodes)
    cost_ms = random.choice((0.0, 0.5, 1.5 * arrival_ms * partitions / most))
    cost_ms = min(cost_ms, settings.timeout_ms / 100)  # a step of two sources must fit into it
    sources = {"partitions": partitions, "blind": random.choice((0, 2, 2)), "cost_ms": cost_ms}
    return msgspec.structs.replace(
        settings,
        nodes=tuple(
            msgspec.structs.replace(node, **sources) if node.kind == "source" else node for node in settings.nodes
        ),
        endless=True,
        arrival_ms=arrival_ms,
        cold_parallelism=settings.parallelism,
        clock=random.choice(("", "group", ONE_CLOCK)),
    )


def _with_rollback(random: Random, settings: Settings) -> Settings:
    """Add a rollback to some queries. It is drawn last, so that earlier seeds keep their other settings."""
    if random.random() < 0.85:
        return settings
    faults = [*settings.faults, Fault(ROLLBACK, random.randrange(20, FAULT_STEPS))]
    return msgspec.structs.replace(settings, faults=tuple(sorted(faults, key=lambda fault: fault.step)))


def _draw_faults(random: Random) -> tuple[Fault, ...]:
    count = random.choices((0, 1, 2, 3, 5), (10, 30, 30, 20, 10))[0]
    steps = sorted(random.randrange(20, FAULT_STEPS) for _ in range(count))
    return tuple(Fault(random.choice(FAULT_KINDS), step) for step in steps)


def _with_costs(random: Random, nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    """Most nodes are quick; now and then one is slow, and keyed ones more often."""
    costs = (0.0, 0.0, 0.02, 0.2, 2.0)
    return tuple(
        msgspec.structs.replace(
            node, cost_ms=0.0 if node.kind == "source" else random.choice(costs if node.kind in KEYED else costs[:4])
        )
        for node in nodes
    )
