package penstock.peer;

import java.time.Duration;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.configuration.CheckpointingOptions;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.ExecutionOptions;
import org.apache.flink.connector.datagen.source.DataGeneratorSource;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.util.ParameterTool;

/**
 * Rows by the clock -> hash exchange, count per key -> a sink that counts how late they are.
 *
 * <p>Arguments: {@code --startedUs --steps --folder --intervalMs --unaligned --bufferTimeoutMs --keys}. Parallelism is
 * that of the run request.
 */
public final class LatencyUnderLoad {
    private LatencyUnderLoad() {}

    public static void main(String[] args) throws Exception {
        ParameterTool given = ParameterTool.fromArgs(args);
        StreamExecutionEnvironment env = StreamExecutionEnvironment.getExecutionEnvironment();
        env.configure(settings(given));
        DueRows rows = new DueRows(given.getLong("startedUs"), given.get("steps", ""), given.getLong("keys"));
        env.fromSource(
                        new DataGeneratorSource<>(rows, Long.MAX_VALUE, TypeInformation.of(DueRow.class)),
                        WatermarkStrategy.noWatermarks(),
                        "source")
                .keyBy(row -> row.key, Types.LONG)
                .process(new CountPerKey<DueRow>())
                .returns(DueRow.class)
                .name("count")
                .sinkTo(new LatencySink(given.get("folder")));
        env.execute("latency under load");
    }

    private static Configuration settings(ParameterTool given) {
        Configuration settings = new Configuration();
        settings.set(CheckpointingOptions.CHECKPOINTING_INTERVAL, Duration.ofMillis(given.getLong("intervalMs")));
        settings.set(CheckpointingOptions.ENABLE_UNALIGNED, given.getBoolean("unaligned"));
        settings.set(ExecutionOptions.BUFFER_TIMEOUT, Duration.ofMillis(given.getLong("bufferTimeoutMs")));
        return settings;
    }
}
