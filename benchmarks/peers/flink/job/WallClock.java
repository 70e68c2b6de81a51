package penstock.peer;

import java.time.Instant;
import java.time.temporal.ChronoUnit;

/** Microseconds since 1970, of the wall clock as it was when this was made and what has passed since then. */
final class WallClock {
    private final long beganMicros = ChronoUnit.MICROS.between(Instant.EPOCH, Instant.now());
    private final long beganNanos = System.nanoTime();

    long micros() {
        return beganMicros + (System.nanoTime() - beganNanos) / 1000;
    }
}
