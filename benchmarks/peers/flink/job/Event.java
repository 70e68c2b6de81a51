package penstock.peer;

/** What flows: a number that keys are drawn from, and ballast. A Flink POJO. */
public class Event {
    public long id;
    public byte[] payload;

    public Event() {}

    public Event(long id, byte[] payload) {
        this.id = id;
        this.payload = payload;
    }

    /**
     * The key of a stage: spread evenly, and unlike those of the other stages (the finaliser of SplitMix64); but of a
     * hundred events so many are of key 0, in all stages the same ones.
     */
    public static long key(long id, int stage, long keys, long hotPercent) {
        if (id % 100 < hotPercent) {
            return 0;
        }
        long mixed = id + 0x9E3779B97F4A7C15L * (stage + 1);
        mixed = (mixed ^ (mixed >>> 30)) * 0xBF58476D1CE4E5B9L;
        mixed = (mixed ^ (mixed >>> 27)) * 0x94D049BB133111EBL;
        return Long.remainderUnsigned(mixed ^ (mixed >>> 31), keys);
    }
}
