package penstock.peer;

import java.time.Duration;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.configuration.CheckpointingOptions;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.datagen.source.DataGeneratorSource;
import org.apache.flink.connector.datagen.source.GeneratorFunction;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.util.ParameterTool;

/**
 * Generated events -> as many times as there are stages (hash exchange, count per key) -> a slow sink.
 *
 * <p>Arguments: {@code --stages --keys --hotPercent --payloadBytes --rowUs --intervalMs --unaligned
 * --alignmentTimeoutMs --duringRecovery --failFile --rowLog}; {@code --intervalMs 0} is no checkpoints. Parallelism is
 * that of the run request.
 */
public final class Backpressure {
    private Backpressure() {}

    public static void main(String[] args) throws Exception {
        ParameterTool given = ParameterTool.fromArgs(args);
        int payloadBytes = given.getInt("payloadBytes");
        long keys = given.getLong("keys");
        long hotPercent = given.getLong("hotPercent");

        StreamExecutionEnvironment env = StreamExecutionEnvironment.getExecutionEnvironment();
        env.configure(checkpoints(given));
        GeneratorFunction<Long, Event> generate = id -> new Event(id, new byte[payloadBytes]);
        DataStream<Event> events =
                env.fromSource(
                                new DataGeneratorSource<>(generate, Long.MAX_VALUE, TypeInformation.of(Event.class)),
                                WatermarkStrategy.noWatermarks(),
                                "source")
                        .uid("source");
        for (int number = 1; number <= given.getInt("stages"); number++) {
            int stage = number;
            events =
                    events.keyBy(event -> Event.key(event.id, stage, keys, hotPercent), Types.LONG)
                            .process(new CountPerKey<Event>())
                            .returns(Event.class)
                            .name("stage" + stage)
                            .uid("stage" + stage);
        }
        events.process(new SlowSink(given.getLong("rowUs") * 1000, given.get("failFile", ""), given.get("rowLog", "")))
                .returns(Event.class)
                .name("slow")
                .uid("slow")
                .sinkTo(new DiscardingSink<>());
        env.execute("backpressure");
    }

    private static Configuration checkpoints(ParameterTool given) {
        Configuration settings = new Configuration();
        long intervalMs = given.getLong("intervalMs");
        if (intervalMs > 0) {
            settings.set(CheckpointingOptions.CHECKPOINTING_INTERVAL, Duration.ofMillis(intervalMs));
            settings.set(CheckpointingOptions.CHECKPOINTING_TIMEOUT, Duration.ofMinutes(20));
            settings.set(CheckpointingOptions.ENABLE_UNALIGNED, given.getBoolean("unaligned"));
            settings.set(
                    CheckpointingOptions.ALIGNED_CHECKPOINT_TIMEOUT,
                    Duration.ofMillis(given.getLong("alignmentTimeoutMs")));
            boolean duringRecovery = given.getBoolean("duringRecovery");
            settings.set(CheckpointingOptions.UNALIGNED_RECOVER_OUTPUT_ON_DOWNSTREAM, duringRecovery);
            settings.set(CheckpointingOptions.CHECKPOINTING_DURING_RECOVERY_ENABLED, duringRecovery);
        }
        return settings;
    }
}
