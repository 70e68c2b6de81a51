package penstock.peer;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.List;
import java.util.TreeMap;
import java.util.concurrent.locks.LockSupport;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.CheckpointListener;
import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.metrics.Counter;
import org.apache.flink.runtime.state.FunctionInitializationContext;
import org.apache.flink.runtime.state.FunctionSnapshotContext;
import org.apache.flink.streaming.api.checkpoint.CheckpointedFunction;
import org.apache.flink.streaming.api.functions.ProcessFunction;
import org.apache.flink.util.Collector;

/**
 * Takes so long for each row, and throws on demand.
 *
 * <p>Metrics: {@code rowsProcessed}, since the job began (a restored task goes on from its checkpoint), and
 * {@code rowsCommitted}, those of the newest completed checkpoint: what a failure cannot take back. The row log has both
 * with their times, in files that outlive the process: {@code benchmarks/lib/row_log.py} reads it.
 */
final class SlowSink extends ProcessFunction<Event, Event> implements CheckpointedFunction, CheckpointListener {
    private static final long LOOK_NANOS = 10_000_000;
    private static final long NOTE_NANOS = 50_000_000;

    private final long rowNanos;
    private final String failFile;
    private final String rowLog;

    private transient ListState<Long> kept;
    private transient TreeMap<Long, Long> rowsAtCheckpoint;
    private transient Counter rows;
    private transient boolean throwing;
    private transient long nextLook;
    private transient long nextNote;
    private transient Path processedNotes;
    private transient Path committedNotes;
    private long restored;
    private volatile long committed;

    /**
     * @param rowNanos how long a row takes; 0: no time
     * @param failFile the first subtask removes it when it is there, and throws; empty: never
     * @param rowLog the directory of the row log; empty for no log
     */
    SlowSink(long rowNanos, String failFile, String rowLog) {
        this.rowNanos = rowNanos;
        this.failFile = failFile;
        this.rowLog = rowLog;
    }

    @Override
    public void initializeState(FunctionInitializationContext context) throws Exception {
        kept = context.getOperatorStateStore().getListState(new ListStateDescriptor<>("rows", Types.LONG));
        for (long before : kept.get()) {
            restored += before;
        }
        committed = restored;
        rowsAtCheckpoint = new TreeMap<>();
    }

    @Override
    public void open(OpenContext context) {
        rows = getRuntimeContext().getMetricGroup().counter("rowsProcessed");
        rows.inc(restored);
        getRuntimeContext().getMetricGroup().gauge("rowsCommitted", () -> committed);
        throwing = !failFile.isEmpty() && getRuntimeContext().getTaskInfo().getIndexOfThisSubtask() == 0;
        if (!rowLog.isEmpty()) {
            int subtask = getRuntimeContext().getTaskInfo().getIndexOfThisSubtask();
            processedNotes = Path.of(rowLog, subtask + "-" + System.nanoTime() + ".processed");
            committedNotes = Path.of(rowLog, subtask + ".committed");
        }
    }

    @Override
    public void processElement(Event event, Context context, Collector<Event> out) throws Exception {
        if (rowNanos > 0) {
            LockSupport.parkNanos(rowNanos);
        }
        if (throwing && System.nanoTime() >= nextLook) {
            nextLook = System.nanoTime() + LOOK_NANOS;
            if (Files.deleteIfExists(Path.of(failFile))) {
                throw new IllegalStateException("asked to fail by " + failFile);
            }
        }
        rows.inc();
        if (processedNotes != null && System.nanoTime() >= nextNote) {
            nextNote = System.nanoTime() + NOTE_NANOS;
            note(processedNotes, rows.getCount() - restored);
        }
        out.collect(event);
    }

    @Override
    public void snapshotState(FunctionSnapshotContext context) throws Exception {
        kept.update(List.of(rows.getCount()));
        rowsAtCheckpoint.put(context.getCheckpointId(), rows.getCount());
    }

    @Override
    public void notifyCheckpointComplete(long checkpoint) throws IOException {
        Long held = rowsAtCheckpoint.get(checkpoint);
        if (held != null) {
            committed = held;
            if (committedNotes != null) {
                note(committedNotes, held);
            }
        }
        rowsAtCheckpoint.headMap(checkpoint, true).clear();
    }

    private static void note(Path notes, long count) throws IOException {
        String line = System.currentTimeMillis() + " " + count + "\n";
        Files.writeString(notes, line, StandardOpenOption.CREATE, StandardOpenOption.APPEND);
    }
}
