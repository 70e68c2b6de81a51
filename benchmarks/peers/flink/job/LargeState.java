package penstock.peer;

import java.nio.file.Path;
import java.time.Duration;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.typeinfo.PrimitiveArrayTypeInfo;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.configuration.CheckpointingOptions;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.StateBackendOptions;
import org.apache.flink.connector.file.src.FileSource;
import org.apache.flink.connector.file.src.reader.TextLineInputFormat;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.util.ParameterTool;

/**
 * Files of lines {@code <key> <value>} that appear in a folder -> sums, minima and maxima per key -> nowhere.
 *
 * <p>Arguments: {@code --input --values --backend --intervalMs}. Parallelism is that of the run request.
 */
public final class LargeState {
    private static final Duration LOOK = Duration.ofMillis(100);

    private LargeState() {}

    public static void main(String[] args) throws Exception {
        ParameterTool given = ParameterTool.fromArgs(args);
        Configuration settings = new Configuration();
        settings.set(StateBackendOptions.STATE_BACKEND, given.get("backend"));
        settings.set(CheckpointingOptions.INCREMENTAL_CHECKPOINTS, true); // as far as the backend can
        settings.set(CheckpointingOptions.CHECKPOINTING_INTERVAL, Duration.ofMillis(given.getLong("intervalMs")));
        settings.set(CheckpointingOptions.CHECKPOINTING_TIMEOUT, Duration.ofMinutes(20));

        StreamExecutionEnvironment env = StreamExecutionEnvironment.getExecutionEnvironment();
        env.configure(settings);
        FileSource<String> lines =
                FileSource.forRecordStreamFormat(
                                new TextLineInputFormat(),
                                org.apache.flink.core.fs.Path.fromLocalFile(Path.of(given.get("input")).toFile()))
                        .monitorContinuously(LOOK)
                        .build();
        env.fromSource(lines, WatermarkStrategy.noWatermarks(), "source")
                .map(LargeState::row)
                .returns(PrimitiveArrayTypeInfo.LONG_PRIMITIVE_ARRAY_TYPE_INFO)
                .keyBy(row -> row[0], Types.LONG)
                .process(new Aggregates(given.getInt("values")))
                .returns(Types.LONG)
                .name("aggregates")
                .uid("aggregates")
                .sinkTo(new DiscardingSink<>());
        env.execute("large state");
    }

    /** A key and a value. */
    private static long[] row(String line) {
        int space = line.indexOf(' ');
        return new long[] {Long.parseLong(line, 0, space, 10), Long.parseLong(line, space + 1, line.length(), 10)};
    }
}
