package penstock.peer;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.flink.table.data.TimestampData;
import org.apache.flink.table.data.columnar.ColumnarRowData;
import org.apache.flink.table.data.columnar.vector.BytesColumnVector;
import org.apache.flink.table.data.columnar.vector.ColumnVector;
import org.apache.flink.table.data.columnar.vector.IntColumnVector;
import org.apache.flink.table.data.columnar.vector.LongColumnVector;
import org.apache.flink.table.data.columnar.vector.RowColumnVector;
import org.apache.flink.table.data.columnar.vector.TimestampColumnVector;
import org.apache.flink.table.data.columnar.vector.VectorizedColumnBatch;

/**
 * Some of Nexmark's events, column by column as {@code benchmarks/peers/flink/blocks.py} writes them. Columns are views of the
 * file's bytes: what a query does not touch costs nothing.
 *
 * <p>Little endian: how many events; the kind of each; then for person, auction and bid how many there are, and their
 * columns; then the time of each event. A column of numbers is one long each; of texts, the ends of all (ints, the first
 * is 0) and their bytes.
 */
final class EventBlock {
    /** {@code l}ong, {@code t}ime, {@code s}tring. */
    private static final String[] COLUMNS = {"lsssssts", "lssllttlls", "lllssts"};

    private final byte[] bytes;
    private final ByteBuffer view;

    private EventBlock(byte[] bytes) {
        this.bytes = bytes;
        this.view = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN);
    }

    static VectorizedColumnBatch read(Path path) throws IOException {
        return new EventBlock(Files.readAllBytes(path)).events();
    }

    private VectorizedColumnBatch events() {
        int count = view.getInt();
        int[] kinds = new int[count];
        int[] places = new int[count];
        int[] seen = new int[COLUMNS.length];
        for (int row = 0; row < count; row++) {
            kinds[row] = view.getInt();
            places[row] = seen[kinds[row]]++;
        }
        ColumnVector[] columns = new ColumnVector[COLUMNS.length + 2];
        columns[0] = new Kinds(kinds);
        for (int kind = 0; kind < COLUMNS.length; kind++) {
            columns[kind + 1] = new Rows(kind, kinds, places, rowsOf(COLUMNS[kind]));
        }
        columns[columns.length - 1] = times(count);
        return batch(columns, count);
    }

    private VectorizedColumnBatch rowsOf(String types) {
        int count = view.getInt();
        ColumnVector[] columns = new ColumnVector[types.length()];
        for (int number = 0; number < columns.length; number++) {
            char type = types.charAt(number);
            columns[number] = type == 's' ? texts(count) : type == 't' ? times(count) : longs(count);
        }
        return batch(columns, count);
    }

    private static VectorizedColumnBatch batch(ColumnVector[] columns, int rows) {
        VectorizedColumnBatch made = new VectorizedColumnBatch(columns);
        made.setNumRows(rows);
        return made;
    }

    private Longs longs(int count) {
        return new Longs(view, taken(count * Long.BYTES));
    }

    private Times times(int count) {
        return new Times(view, taken(count * Long.BYTES));
    }

    private Texts texts(int count) {
        int ends = taken((count + 1) * Integer.BYTES);
        int size = view.getInt(ends + count * Integer.BYTES);
        return new Texts(view, ends, bytes, taken(size));
    }

    /** Where the next so many bytes begin, which are passed over. */
    private int taken(int size) {
        int at = view.position();
        view.position(at + size);
        return at;
    }

    private record Kinds(int[] kinds) implements IntColumnVector {
        @Override
        public int getInt(int row) {
            return kinds[row];
        }

        @Override
        public boolean isNullAt(int row) {
            return false;
        }
    }

    private record Longs(ByteBuffer view, int at) implements LongColumnVector {
        @Override
        public long getLong(int row) {
            return view.getLong(at + row * Long.BYTES);
        }

        @Override
        public boolean isNullAt(int row) {
            return false;
        }
    }

    private record Times(ByteBuffer view, int at) implements TimestampColumnVector {
        @Override
        public TimestampData getTimestamp(int row, int precision) {
            return TimestampData.fromEpochMillis(view.getLong(at + row * Long.BYTES));
        }

        @Override
        public boolean isNullAt(int row) {
            return false;
        }
    }

    private record Texts(ByteBuffer view, int ends, byte[] bytes, int at) implements BytesColumnVector {
        @Override
        public Bytes getBytes(int row) {
            int from = view.getInt(ends + row * Integer.BYTES);
            return new Bytes(bytes, at + from, view.getInt(ends + (row + 1) * Integer.BYTES) - from);
        }

        @Override
        public boolean isNullAt(int row) {
            return false;
        }
    }

    /** Of one kind; null where an event is of another. */
    private record Rows(int kind, int[] kinds, int[] places, VectorizedColumnBatch rows) implements RowColumnVector {
        @Override
        public ColumnarRowData getRow(int row) {
            return new ColumnarRowData(rows, places[row]);
        }

        @Override
        public boolean isNullAt(int row) {
            return kinds[row] != kind;
        }
    }
}
