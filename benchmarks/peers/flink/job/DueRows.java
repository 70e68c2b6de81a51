package penstock.peer;

import java.util.concurrent.locks.LockSupport;
import org.apache.flink.api.connector.source.SourceReaderContext;
import org.apache.flink.connector.datagen.source.GeneratorFunction;

/**
 * Rows that come by a clock that changes its pace, or as fast as they are taken: what {@code
 * benchmarks/lib/variable_rate_source.py} does. A row that is not due yet is waited for.
 */
final class DueRows implements GeneratorFunction<Long, DueRow> {
    private final long startedMicros;
    private final long[] rowsPerSecond;
    private final long[] seconds;
    private final long keys;

    private transient WallClock clock;
    private transient int subtask;
    private transient int subtasks;
    private transient long count;
    private transient int step;
    private transient long stepRow;
    private transient long stepMicros;
    private transient long nowMicros;

    /**
     * @param startedMicros when row 0 is due
     * @param steps rows a second, a colon, seconds, and so on behind commas; empty: rows are due when they are taken
     */
    DueRows(long startedMicros, String steps, long keys) {
        String[] given = steps.isEmpty() ? new String[0] : steps.split(",");
        this.startedMicros = startedMicros;
        this.keys = keys;
        rowsPerSecond = new long[given.length];
        seconds = new long[given.length];
        for (int which = 0; which < given.length; which++) {
            String[] parts = given[which].split(":");
            rowsPerSecond[which] = Long.parseLong(parts[0]);
            seconds[which] = Long.parseLong(parts[1]);
        }
    }

    @Override
    public void open(SourceReaderContext context) {
        clock = new WallClock();
        subtask = context.getIndexOfSubtask();
        subtasks = context.currentParallelism();
        stepMicros = startedMicros;
    }

    /** Rows are numbered over all subtasks, in turns. */
    @Override
    public DueRow map(Long id) throws InterruptedException {
        long number = count++ * subtasks + subtask;
        return new DueRow(Event.key(number, 0, keys, 0), number * 0.1, awaited(number));
    }

    private long awaited(long number) throws InterruptedException {
        if (rowsPerSecond.length == 0) {
            return clock.micros();
        }
        while (step < rowsPerSecond.length && number >= stepRow + rowsPerSecond[step] * seconds[step]) {
            stepRow += rowsPerSecond[step] * seconds[step];
            stepMicros += seconds[step] * 1_000_000;
            step++;
        }
        if (step == rowsPerSecond.length) {
            Thread.sleep(Long.MAX_VALUE); // behind the last step there are no more: the job is cancelled
        }
        long dueMicros = stepMicros + (number - stepRow) * 1_000_000 / rowsPerSecond[step];
        // The clock is looked at only where it matters: a source that is behind need not know how late it is.
        while (dueMicros > nowMicros && dueMicros > (nowMicros = clock.micros())) {
            LockSupport.parkNanos((dueMicros - nowMicros) * 1000);
            if (Thread.interrupted()) {
                throw new InterruptedException("cancelled");
            }
        }
        return dueMicros;
    }
}
