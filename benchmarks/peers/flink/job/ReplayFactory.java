package penstock.peer;

import java.util.Set;
import org.apache.flink.configuration.ConfigOption;
import org.apache.flink.configuration.ConfigOptions;
import org.apache.flink.table.connector.source.DynamicTableSource;
import org.apache.flink.table.factories.DynamicTableSourceFactory;
import org.apache.flink.table.factories.FactoryUtil;

/** {@code 'connector' = 'replay'}: Nexmark's events from a folder of blocks, see {@code EventBlock}. */
public final class ReplayFactory implements DynamicTableSourceFactory {
    private static final ConfigOption<String> PATH = ConfigOptions.key("path").stringType().noDefaultValue();
    private static final ConfigOption<Long> BLOCKS = ConfigOptions.key("blocks").longType().noDefaultValue();

    @Override
    public String factoryIdentifier() {
        return "replay";
    }

    @Override
    public Set<ConfigOption<?>> requiredOptions() {
        return Set.of(PATH, BLOCKS);
    }

    @Override
    public Set<ConfigOption<?>> optionalOptions() {
        return Set.of();
    }

    @Override
    public DynamicTableSource createDynamicTableSource(Context context) {
        FactoryUtil.TableFactoryHelper helper = FactoryUtil.createTableFactoryHelper(this, context);
        helper.validate();
        return new ReplayTable(
                helper.getOptions().get(PATH), helper.getOptions().get(BLOCKS), context.getPhysicalRowDataType());
    }
}
