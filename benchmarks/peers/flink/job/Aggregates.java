package penstock.peer;

import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.PrimitiveArrayTypeInfo;
import org.apache.flink.metrics.Counter;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.util.Collector;

/**
 * Keeps so many sums, minima and maxima of each key's values, and hands on the key of every row.
 *
 * <p>Metric: {@code rowsTaken}, by this task since it was started.
 */
final class Aggregates extends KeyedProcessFunction<Long, long[], Long> {
    private final int values;
    private transient ValueState<long[]> kept;
    private transient Counter rows;

    Aggregates(int values) {
        this.values = values;
    }

    @Override
    public void open(OpenContext context) {
        kept = getRuntimeContext()
                .getState(new ValueStateDescriptor<>("kept", PrimitiveArrayTypeInfo.LONG_PRIMITIVE_ARRAY_TYPE_INFO));
        rows = getRuntimeContext().getMetricGroup().counter("rowsTaken");
    }

    @Override
    public void processElement(long[] row, Context context, Collector<Long> out) throws Exception {
        long[] before = kept.value();
        long[] now = before == null ? new long[values] : before.clone();
        for (int n = 0; n < values; n++) {
            long value = row[1] + n / 3;
            if (before == null) {
                now[n] = value;
            } else if (n % 3 == 0) {
                now[n] += value;
            } else {
                now[n] = n % 3 == 1 ? Math.min(now[n], value) : Math.max(now[n], value);
            }
        }
        kept.update(now);
        rows.inc();
        out.collect(row[0]);
    }
}
