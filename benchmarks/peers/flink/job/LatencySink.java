package penstock.peer;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import org.apache.flink.api.connector.sink2.Sink;
import org.apache.flink.api.connector.sink2.SinkWriter;
import org.apache.flink.api.connector.sink2.WriterInitContext;

/**
 * Keeps no rows: counts how late they are, by when they were due. What it counted is noted with each checkpoint; {@code
 * benchmarks/lib/latency_sink.py} says how, and does the same.
 */
final class LatencySink implements Sink<DueRow> {
    private final String folder;

    LatencySink(String folder) {
        this.folder = folder;
    }

    @Override
    public SinkWriter<DueRow> createWriter(WriterInitContext context) {
        return new Writer(folder, context.getTaskInfo().getIndexOfThisSubtask());
    }

    private record Seconds(long due, long arrived) {}

    private static final class Writer implements SinkWriter<DueRow> {
        private static final int EXACT_BITS = 8;
        private static final int HALF = 1 << (EXACT_BITS - 1);
        private static final long MOST_MICROS = (1L << 32) - 1;
        private static final int BUCKETS = (32 - EXACT_BITS + 2) * HALF;

        private final WallClock clock = new WallClock();
        private final String folder;
        private final int subtask;
        private final Map<Seconds, long[]> counts = new HashMap<>();
        private Seconds current = new Seconds(-1, -1);
        private long[] currentCounts = new long[0];

        Writer(String folder, int subtask) {
            this.folder = folder;
            this.subtask = subtask;
        }

        @Override
        public void write(DueRow row, Context context) {
            long nowMicros = clock.micros();
            long dueSecond = row.dueMicros / 1_000_000;
            long second = nowMicros / 1_000_000;
            if (dueSecond != current.due || second != current.arrived) {
                current = new Seconds(dueSecond, second);
                currentCounts = counts.computeIfAbsent(current, ignored -> new long[BUCKETS]);
            }
            currentCounts[bucket(Math.min(Math.max(nowMicros - row.dueMicros, 0), MOST_MICROS))]++;
        }

        private static int bucket(long micros) {
            int shift = Math.max(Long.SIZE - Long.numberOfLeadingZeros(micros) - EXACT_BITS, 0);
            return shift * HALF + (int) (micros >> shift);
        }

        private static long leastMicros(int bucket) {
            return bucket < 2 * HALF ? bucket : (long) (bucket % HALF + HALF) << (bucket / HALF - 1);
        }

        /** A file is there whole, or not at all. */
        @Override
        public void flush(boolean endOfInput) throws IOException {
            StringBuilder lines = new StringBuilder();
            counts.forEach((seconds, row) -> {
                for (int bucket = 0; bucket < BUCKETS; bucket++) {
                    if (row[bucket] > 0) {
                        lines.append(seconds.due).append(' ').append(seconds.arrived).append(' ');
                        lines.append(leastMicros(bucket)).append(' ').append(row[bucket]).append('\n');
                    }
                }
            });
            counts.clear();
            current = new Seconds(-1, -1);
            String name = subtask + "-" + System.nanoTime();
            Path draft = Path.of(folder, name + ".draft");
            Files.writeString(draft, lines);
            Files.move(draft, Path.of(folder, name + ".latency"));
        }

        @Override
        public void close() {}
    }
}
