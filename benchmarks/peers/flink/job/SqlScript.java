package penstock.peer;

import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.flink.api.common.RuntimeExecutionMode;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;

/**
 * The statements of a file in SQL, each ended by a line with {@code ;} alone; the last one is the job.
 *
 * <p>Argument: the file. {@code SET} statements do not reach an environment that exists already: {@code name=value}
 * arguments after the file are the table planner's and the pipeline's settings.
 */
public final class SqlScript {
    private SqlScript() {}

    public static void main(String[] args) throws Exception {
        StreamExecutionEnvironment env = StreamExecutionEnvironment.getExecutionEnvironment();
        env.setRuntimeMode(RuntimeExecutionMode.STREAMING);
        StreamTableEnvironment tables = StreamTableEnvironment.create(env);
        for (int number = 1; number < args.length; number++) {
            String[] setting = args[number].split("=", 2);
            tables.getConfig().set(setting[0], setting[1]);
        }
        for (String statement : Files.readString(Path.of(args[0])).split("\n;\n")) {
            if (!statement.isBlank()) {
                tables.executeSql(statement);
            }
        }
    }
}
