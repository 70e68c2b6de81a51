package penstock.peer;

import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.util.Collector;

/** Counts the rows of each key and hands every row on. */
final class CountPerKey<T> extends KeyedProcessFunction<Long, T, T> {
    private transient ValueState<Long> count;

    @Override
    public void open(OpenContext context) {
        count = getRuntimeContext().getState(new ValueStateDescriptor<>("count", Types.LONG));
    }

    @Override
    public void processElement(T row, Context context, Collector<T> out) throws Exception {
        Long before = count.value();
        count.update(before == null ? 1L : before + 1);
        out.collect(row);
    }
}
