package penstock.peer;

import java.io.IOException;
import java.nio.file.Path;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.functions.RichFlatMapFunction;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.connector.source.lib.NumberSequenceSource;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.table.connector.ChangelogMode;
import org.apache.flink.table.connector.ProviderContext;
import org.apache.flink.table.connector.source.DataStreamScanProvider;
import org.apache.flink.table.connector.source.DynamicTableSource;
import org.apache.flink.table.connector.source.ScanTableSource;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.data.columnar.ColumnarRowData;
import org.apache.flink.table.data.columnar.vector.VectorizedColumnBatch;
import org.apache.flink.table.types.DataType;
import org.apache.flink.util.Collector;

/** The blocks in turns: of two subtasks one reads the even ones and the other the odd ones, each in order. */
final class ReplayTable implements ScanTableSource {
    private final String path;
    private final long blocks;
    private final DataType type;

    ReplayTable(String path, long blocks, DataType type) {
        this.path = path;
        this.blocks = blocks;
        this.type = type;
    }

    @Override
    public ChangelogMode getChangelogMode() {
        return ChangelogMode.insertOnly();
    }

    @Override
    public ScanRuntimeProvider getScanRuntimeProvider(ScanContext context) {
        TypeInformation<RowData> produced = context.createTypeInformation(type);
        return new DataStreamScanProvider() {
            @Override
            public DataStream<RowData> produceDataStream(ProviderContext naming, StreamExecutionEnvironment env) {
                return env.fromSource(
                                new NumberSequenceSource(0, blocks - 1), WatermarkStrategy.noWatermarks(), "blocks")
                        .flatMap(new ReadBlock(path, blocks))
                        .returns(produced);
            }

            @Override
            public boolean isBounded() {
                return true;
            }
        };
    }

    @Override
    public DynamicTableSource copy() {
        return new ReplayTable(path, blocks, type);
    }

    @Override
    public String asSummaryString() {
        return "replay of " + path;
    }

    /** The source gives each subtask a range of numbers; the n-th of them stands for the n-th of its blocks. */
    private static final class ReadBlock extends RichFlatMapFunction<Long, RowData> {
        private final String path;
        private final long blocks;
        private transient long subtasks;

        ReadBlock(String path, long blocks) {
            this.path = path;
            this.blocks = blocks;
        }

        @Override
        public void open(OpenContext context) {
            subtasks = getRuntimeContext().getTaskInfo().getNumberOfParallelSubtasks();
            if (blocks % subtasks != 0) {
                throw new IllegalArgumentException(blocks + " blocks cannot be dealt out to " + subtasks);
            }
        }

        @Override
        public void flatMap(Long number, Collector<RowData> out) throws IOException {
            long each = blocks / subtasks;
            long block = number % each * subtasks + number / each;
            VectorizedColumnBatch events = EventBlock.read(Path.of(path, "block-" + block));
            for (int row = 0; row < events.getNumRows(); row++) {
                out.collect(new ColumnarRowData(events, row));
            }
        }
    }
}
