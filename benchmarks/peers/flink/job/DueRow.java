package penstock.peer;

/** A row that was due at a moment: what flows through {@link LatencyUnderLoad}. A Flink POJO. */
public class DueRow {
    public long key;
    public double value;
    public long dueMicros;

    public DueRow() {}

    public DueRow(long key, double value, long dueMicros) {
        this.key = key;
        this.value = value;
        this.dueMicros = dueMicros;
    }
}
