"""Declaration of every setting ``spark.sql.streaming.*``: Penstock obeys it, refuses some values, or ignores it.

``check_settings`` checks settings against this declaration when a query starts. ``settings_page`` prints it to
``docs/settings.md``. A test compares it with the settings of the installed Spark.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from penstock.config import duration_ms, whole_number
from penstock.errors import NotSupported
from penstock.logs import get_logger

log = get_logger(__name__)

PREFIX = "spark.sql.streaming."


class Treatment(Enum):
    """Treatment of a setting. ``REFUSED``: a query starts only if the setting has an allowed value."""

    OBEYED = "obeyed"
    REFUSED = "refused"
    IRRELEVANT = "no effect"


@dataclass(frozen=True)
class Setting:
    """One setting, or several with the same reason.

    Attributes:
        names: names without ``PREFIX``; full names if they do not begin with it. ``*`` at the end matches any text.
        why: the effect of an obeyed setting; the reason of a refusal and what to do instead; why it has no effect.
        allowed: for a refused setting, the values in lower case with which a query starts.
    """

    names: tuple[str, ...]
    treatment: Treatment
    why: str
    allowed: tuple[str, ...] = ()

    @property
    def full_names(self) -> list[str]:
        return [name if name.startswith("spark.") else PREFIX + name for name in self.names]


def _obeyed(why: str, *names: str) -> Setting:
    return Setting(names, Treatment.OBEYED, why)


def _refused(name: str, allowed: str, why: str) -> Setting:
    return Setting((name,), Treatment.REFUSED, why, (allowed,))


def _irrelevant(why: str, *names: str) -> Setting:
    return Setting(names, Treatment.IRRELEVANT, why)


_BY_SPARK = "Spark obeys it when the DataFrame is made or the plan is optimized, before Penstock reads the plan"
_NO_STATE_STORE = "Penstock does not use Spark's state stores: state is in Penstock's snapshots"
_NO_LOGS = "Penstock writes no metadata log: this information is in its snapshots"

SETTINGS: tuple[Setting, ...] = (
    _obeyed("A base directory; the query's name is appended", "checkpointLocation"),
    _obeyed(
        "`min` or `max` of several watermarks, [watermarks](architecture.md#watermarks)", "multipleWatermarkPolicy"
    ),
    _obeyed("With `false`, a second start at a location is refused while the first one runs", "stopActiveRunOnRestart"),
    _obeyed("The length of `recentProgress`", "numRecentProgressUpdates"),
    _obeyed("The shortest time between two idle events for listeners", "noDataProgressEventInterval"),
    _obeyed("Spark registers these listeners; Penstock's queries send events to them", "streamingQueryListeners"),
    _obeyed(
        "Spark's Structured Streaming tab shows the queries",
        *("ui.enabled", "ui.retainedProgressUpdates", "ui.retainedQueries"),
    ),
    _obeyed(
        _BY_SPARK,
        *("schemaInference", "fileSource.schema.forceNullable", "validateEventTimeWatermarkColumn"),
        *("optimizeOneRowPlan.enabled", "statefulOperator.checkCorrectness.enabled", "disabledV2MicroBatchReaders"),
        *(
            "spark.sql.optimizer.pruneFiltersCanPruneStreamingSubplan",
            "spark.sql.dropDuplicates.deterministicKeyOrder.enabled",
        ),
    ),
    _refused(
        "noDataMicroBatches.enabled",
        "true",
        "Penstock emits results as soon as the watermark has passed them and cannot hold them until more rows arrive; "
        "leave it true",
    ),
    _refused(
        "statefulOperator.allowMultiple",
        "true",
        "each operator uses the watermark of its own input to find late rows, as Spark does with true; leave it true",
    ),
    _refused(
        "queryEvolution.enableSourceEvolution",
        "false",
        "in Penstock, penstock.named(df, name) names a source; leave it false",
    ),
    _refused(
        "queryEvolution.enableSinkEvolution",
        "false",
        "Penstock identifies sinks by their order among the outputs; leave it false",
    ),
    _refused(
        "fileStreamSink.ignoreMetadata",
        "false",
        "from a directory that Spark's file sink has written, Penstock reads only the files in its log; leave it false",
    ),
    _refused(
        "commitProtocolClass",
        "org.apache.spark.sql.execution.streaming.manifestfilecommitprotocol",
        "Penstock's file sinks have a commit protocol of their own; leave it unset",
    ),
    _irrelevant(
        "Penstock always runs Spark's check for unsupported operations: a plan that fails it could lose rows",
        "unsupportedOperationCheck",
    ),
    _irrelevant(
        "Penstock always compares stored state with the plan; `snapshots.allowDroppedState` and "
        "`snapshots.allowChangedMeaning` let a query start in spite of a difference",
        "stateStore.stateSchemaCheck",
    ),
    _irrelevant(f"{_NO_STATE_STORE}; `state.backend=rocksdb` keeps it on disk", "stateStore.providerClass"),
    _irrelevant(
        _NO_STATE_STORE,
        *("aggregation.stateFormatVersion", "flatMapGroupsWithState.stateFormatVersion", "join.stateFormatVersion"),
        *("sessionWindow.stateFormatVersion", "transformWithState.stateSchemaVersion", "maxBatchesToRetainInMemory"),
        *("ratioExtraSpaceAllowedInCheckpoint", "statefulOperator.alwaysNullableOutput.enabled"),
        *(
            "statefulOperator.incrementalCleanupFactor",
            "statefulOperator.useStrictDistribution",
            "internal.stateStore.partitions",
            "stateStore.*",
        ),
    ),
    _irrelevant("`snapshots.retained` sets how many snapshots are kept", "minBatchesToRetain"),
    _irrelevant(
        _NO_LOGS,
        *("asyncLogPurge.enabled", "metadataCache.enabled", "offsetLog.formatVersion", "fileSink.log.cleanupDelay"),
        *("fileSink.log.compactInterval", "fileSink.log.deletion", "fileSource.log.cleanupDelay"),
        *("fileSource.log.compactInterval", "fileSource.log.deletion"),
    ),
    _irrelevant(
        "Penstock always checks a location: it must belong to the query or be empty, and every file has a checksum",
        *("checkpoint.escapedPathCheck.enabled", "checkpoint.fileChecksum.enabled"),
        *("checkpoint.fileChecksum.skipCreationIfFileMissingChecksum", "checkpoint.renamedFileCheck.enabled"),
        *("checkpoint.verifyMetadataExists.enabled", "verifyCheckpointDirectoryEmptyOnStart"),
        *("checkUnfinishedRepartitionOnRestart", "checkpointFileManagerClass"),
    ),
    _irrelevant("a temporary location is always removed when its query ends", "forceDeleteTempCheckpointLocation"),
    _irrelevant("`stop()` waits for 30 s at most", "stopTimeout"),
    _irrelevant(
        "Penstock processes rows continuously; `trigger(continuous=...)` and `realTime` set how often it commits",
        *("continuous.epochBacklogQueueSize", "continuous.executorPollIntervalMs", "continuous.executorQueueSize"),
        *("pollingDelay", "realTimeMode.*"),
    ),
    _irrelevant(
        "with `availableNow`, every source finds its available rows itself", "triggerAvailableNowWrapper.enabled"
    ),
    _irrelevant("the driver cleans files after the snapshot", "fileSource.cleaner.numThreads"),
    _irrelevant("Penstock has its own sinks", "disabledV2Writers"),
    _irrelevant("Penstock reads Kafka with its own client", "kafka.useDeprecatedOffsetFetching"),
    _irrelevant("Penstock has its own interface for metrics, [metrics.md](metrics.md)", "metricsEnabled"),
    _irrelevant("Penstock does not use Spark's state stores, which have these metrics", "ui.enabledCustomMetricList"),
    _irrelevant(
        "it changes how Spark's own operators run, but not their results",
        *("sessionWindow.merge.sessions.in.local.partition", "useStreamlineAggregator"),
    ),
    _irrelevant(
        "`flatMapGroupsWithState` of the JVM is refused by name", "flatMapGroupsWithState.skipEmittingInitialStateKeys"
    ),
    _irrelevant("functions over protobuf are refused by name", "spark.sql.function.protobufExtensions.enabled"),
)


def setting_of(name: str) -> Setting | None:
    """Return the declaration of a setting with this full name; None if it is not declared."""
    lower = name.lower()
    for setting in SETTINGS:
        for known in setting.full_names:
            if lower == known.lower() or (known.endswith("*") and lower.startswith(known[:-1].lower())):
                return setting
    return None


@dataclass(frozen=True)
class ObeyedSettings:
    """Settings that a running query uses. ``idle_event_interval_s``: the shortest time between two idle events."""

    recent_progresses: int = 100
    idle_event_interval_s: float = 10.0


def check_settings(session: Mapping[str, str]) -> ObeyedSettings:
    """Check all settings of a session, given by full name.

    Raises:
        NotSupported: a setting has a refused value.
        ConfigError: the value of an obeyed setting is not valid.
    """
    for name, value in session.items():
        setting = setting_of(name)
        if setting is None:
            if not name.lower().startswith(PREFIX):
                continue
            log.warning("%s is set, but Spark has no such setting: correct its name or remove it", name)
        elif setting.treatment is Treatment.REFUSED and value.strip().lower() not in setting.allowed:
            raise NotSupported(f"{name}={value}: {setting.why}")
    lower = {name.lower(): value for name, value in session.items()}
    return ObeyedSettings(
        whole_number(_RECENT, lower.get(_RECENT.lower(), "100")),
        duration_ms(_IDLE, lower.get(_IDLE.lower(), "10000ms")) / 1000,
    )


_RECENT, _IDLE = f"{PREFIX}numRecentProgressUpdates", f"{PREFIX}noDataProgressEventInterval"
