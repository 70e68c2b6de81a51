"""Every setting ``spark.sql.streaming.*``: Penstock obeys it, refuses values that it cannot obey, or has no use for it.

The one declaration: ``check_settings`` reads it at the start of a query, ``docs/settings.md`` is printed from it
(``settings_page``), and a test compares it with the settings that the installed Spark has.
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
    """What becomes of a setting. ``REFUSED``: a query does not start with another value than those that are named."""

    OBEYED = "obeyed"
    REFUSED = "refused"
    IRRELEVANT = "no effect"


@dataclass(frozen=True)
class Setting:
    """One setting, or several with one reason.

    Attributes:
        names: without ``PREFIX``, or whole where they do not begin with it; one that ends with ``*`` stands for all
            that begin so.
        why: what it does here; what is refused, and what to do instead; why it has no effect.
        allowed: of a setting that is refused: the values, in lower case, with which a query starts.
    """

    names: tuple[str, ...]
    treatment: Treatment
    why: str
    allowed: tuple[str, ...] = ()

    @property
    def whole_names(self) -> list[str]:
        return [name if name.startswith("spark.") else PREFIX + name for name in self.names]


def _obeyed(why: str, *names: str) -> Setting:
    return Setting(names, Treatment.OBEYED, why)


def _refused(name: str, allowed: str, why: str) -> Setting:
    return Setting((name,), Treatment.REFUSED, why, (allowed,))


def _irrelevant(why: str, *names: str) -> Setting:
    return Setting(names, Treatment.IRRELEVANT, why)


_BY_SPARK = "Spark obeys it when the DataFrame is made or the plan is optimized, before Penstock reads the plan"
_NO_STATE_STORE = "there is no state store of Spark's: state is in Penstock's snapshots"
_NO_LOGS = "there is no metadata log: a snapshot has all of it"

SETTINGS: tuple[Setting, ...] = (
    _obeyed("A base directory; the query's name is appended", "checkpointLocation"),
    _obeyed(
        "`min` or `max` of several watermarks, [watermarks](architecture.md#watermarks)", "multipleWatermarkPolicy"
    ),
    _obeyed("With `false`, a second start at a location is refused while the first one runs", "stopActiveRunOnRestart"),
    _obeyed("The length of `recentProgress`", "numRecentProgressUpdates"),
    _obeyed("The least time between two idle events of listeners", "noDataProgressEventInterval"),
    _obeyed("Spark registers the listeners, and queries report to them", "streamingQueryListeners"),
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
        "results are emitted as soon as the watermark has passed them, and never held back until more rows come; leave "
        "it true",
    ),
    _refused(
        "statefulOperator.allowMultiple",
        "true",
        "each operator judges late rows by the watermark of its own input, as Spark does with true; leave it true",
    ),
    _refused(
        "queryEvolution.enableSourceEvolution",
        "false",
        "names of sources are given with penstock.named(df, name); leave it false",
    ),
    _refused(
        "queryEvolution.enableSinkEvolution",
        "false",
        "sinks are told apart by their order among the outputs; leave it false",
    ),
    _refused(
        "fileStreamSink.ignoreMetadata",
        "false",
        "of a directory that Spark's file sink has written, the files are read that its log names; leave it false",
    ),
    _refused(
        "commitProtocolClass",
        "org.apache.spark.sql.execution.streaming.manifestfilecommitprotocol",
        "the file sinks commit by a protocol of their own; leave it out",
    ),
    _irrelevant(
        "Spark's check of unsupported operations is always made, since a plan that fails it could lose rows",
        "unsupportedOperationCheck",
    ),
    _irrelevant(
        "stored state is always compared with the plan; `snapshots.allowDroppedState` and "
        "`snapshots.allowChangedMeaning` let a query start all the same",
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
    _irrelevant("`snapshots.retained` says how many snapshots stay", "minBatchesToRetain"),
    _irrelevant(
        _NO_LOGS,
        *("asyncLogPurge.enabled", "metadataCache.enabled", "offsetLog.formatVersion", "fileSink.log.cleanupDelay"),
        *("fileSink.log.compactInterval", "fileSink.log.deletion", "fileSource.log.cleanupDelay"),
        *("fileSource.log.compactInterval", "fileSource.log.deletion"),
    ),
    _irrelevant(
        "a location is always checked: it is a query's own or empty, and every file in it has a checksum",
        *("checkpoint.escapedPathCheck.enabled", "checkpoint.fileChecksum.enabled"),
        *("checkpoint.fileChecksum.skipCreationIfFileMissingChecksum", "checkpoint.renamedFileCheck.enabled"),
        *("checkpoint.verifyMetadataExists.enabled", "verifyCheckpointDirectoryEmptyOnStart"),
        *("checkUnfinishedRepartitionOnRestart", "checkpointFileManagerClass"),
    ),
    _irrelevant("a temporary location is removed whenever its query has ended", "forceDeleteTempCheckpointLocation"),
    _irrelevant("`stop()` waits for at most 30 s", "stopTimeout"),
    _irrelevant(
        "rows flow all the time; `trigger(continuous=...)` and `realTime` say how often they are committed",
        *("continuous.epochBacklogQueueSize", "continuous.executorPollIntervalMs", "continuous.executorQueueSize"),
        *("pollingDelay", "realTimeMode.*"),
    ),
    _irrelevant("with `availableNow`, every source says itself what there is", "triggerAvailableNowWrapper.enabled"),
    _irrelevant("files are cleaned by the driver, after the snapshot", "fileSource.cleaner.numThreads"),
    _irrelevant("Penstock's sinks are its own", "disabledV2Writers"),
    _irrelevant("Kafka is read by Penstock's own client", "kafka.useDeprecatedOffsetFetching"),
    _irrelevant("metrics have an interface of their own, [metrics.md](metrics.md)", "metricsEnabled"),
    _irrelevant("state stores have no metrics here", "ui.enabledCustomMetricList"),
    _irrelevant(
        "it says how Spark's own operators run, and not what comes out of them",
        *("sessionWindow.merge.sessions.in.local.partition", "useStreamlineAggregator"),
    ),
    _irrelevant(
        "`flatMapGroupsWithState` of the JVM is refused by name", "flatMapGroupsWithState.skipEmittingInitialStateKeys"
    ),
    _irrelevant("functions over protobuf are refused by name", "spark.sql.function.protobufExtensions.enabled"),
)


def setting_of(name: str) -> Setting | None:
    """What the declaration says of a setting by its whole name; None: nothing."""
    lower = name.lower()
    for setting in SETTINGS:
        for known in setting.whole_names:
            if lower == known.lower() or (known.endswith("*") and lower.startswith(known[:-1].lower())):
                return setting
    return None


@dataclass(frozen=True)
class ObeyedSettings:
    """Values of settings that a running query reads. ``idle_event_interval_s``: at most one idle event in this time."""

    recent_progresses: int = 100
    idle_event_interval_s: float = 10.0


def check_settings(session: Mapping[str, str]) -> ObeyedSettings:
    """Check all settings of a session, by their whole names.

    Raises:
        NotSupported: a setting has a value that cannot be obeyed.
        ConfigError: one that is obeyed has no valid value.
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
