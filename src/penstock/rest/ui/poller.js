// Asks again and again for what a page shows: not while nobody looks, and ever more seldom while nobody answers.

const SLOWEST_MS = 15_000;

/** Until the next question: twice as long after each that was not answered. */
export function pauseMs(everyMs, failures) {
  return failures ? Math.min(SLOWEST_MS, everyMs * 2 ** failures) : everyMs;
}

/** Resolves when somebody looks, at once if so. */
export async function seen() {
  while (document.hidden) await new Promise((done) => document.addEventListener("visibilitychange", done, { once: true }));
}

export class Poller {
  /**
   * `load(signal)` is awaited every `everyMs`; `onData(data)` and `onError(error)` get what came of it. One request is
   * under way at a time. Hidden tabs ask nothing, and ask at once when they are seen again.
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

  /** Ask now; an answer that is still awaited is not waited for. */
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
