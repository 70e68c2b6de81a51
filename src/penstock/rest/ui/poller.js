// Poller of a page's data. It pauses while the tab is hidden, and slows down while the service does not answer.

const SLOWEST_MS = 15_000;

/** Return the time until the next request. It doubles with each failure. */
export function pauseMs(everyMs, failures) {
  return failures ? Math.min(SLOWEST_MS, everyMs * 2 ** failures) : everyMs;
}

/** Wait until the tab is visible. */
export async function seen() {
  while (document.hidden) await new Promise((done) => document.addEventListener("visibilitychange", done, { once: true }));
}

export class Poller {
  /**
   * Call `load(signal)`, `everyMs` after the end of the previous call, and pass its result to `onData(data)` or
   * `onError(error)`. Only one call runs at a time. None runs while the tab is hidden; the next follows at once when
   * the tab becomes visible.
   */
  constructor(load, everyMs, onData, onError) {
    Object.assign(this, { load, everyMs, onData, onError });
    this.failures = 0;
    this.timer = null;
    this.abort = null;
    this.stopped = false;
    this.seen = () => (document.hidden ? this.pause() : this.poke());
    document.addEventListener("visibilitychange", this.seen);
    if (!document.hidden) this.poke();
  }

  /** Load now. A call that is still running is aborted. */
  async poke() {
    if (this.stopped) return;
    this.pause();
    const abort = (this.abort = new AbortController());
    try {
      const data = await this.load(abort.signal);
      if (abort.signal.aborted) return;
      this.failures = 0;
      this.onData(data);
    } catch (error) {
      if (abort.signal.aborted) return;
      this.failures += 1;
      this.onError(error);
    }
    if (this.abort !== abort || this.stopped) return;
    this.abort = null;
    if (!document.hidden) this.timer = setTimeout(() => this.poke(), pauseMs(this.everyMs, this.failures));
  }

  pause() {
    clearTimeout(this.timer);
    this.abort?.abort();
    this.abort = null;
  }

  stop() {
    this.stopped = true;
    this.pause();
    document.removeEventListener("visibilitychange", this.seen);
  }
}
