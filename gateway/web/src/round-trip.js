// Measures the round-trip time to the desktop, and detects a dead connection: a network failure
// closes no WebSocket.
import { onReturn } from "./state.js";

const EVERY = 5_000;
// Nobody types on into a picture that does not change, so keys are followed by a measurement sooner.
const AFTER_KEYS = 1_500;
const ANSWER = 15_000;
const SLOW_ANSWER = 2_500;
const KEPT = 5;

export class RoundTrip {
  /**
   * Calls show(milliseconds), null if unknown. Calls silent(isSilent) when nothing has arrived for a
   * moment, and when it does again; and lost() when the desktop stops responding.
   */
  constructor(show, silent, lost) {
    this.show = show;
    this.silent = silent;
    this.lost = lost;
    this.isSilent = false;
    this.ask = null;
    // When the first key was sent that no response followed; 0 if there is none.
    this.typedAt = 0;
    setInterval(() => this.look(), 1000);
    onReturn(() => this.hurry());
  }

  /** Starts to measure a new connection; ask() makes the desktop respond. */
  begin(ask) {
    this.ask = ask;
    this.asked = null;
    this.times = [];
    this.last = performance.now();
    // The first picture is large and would distort the measurement.
    this.next = this.last + 1000;
  }

  end() {
    this.ask = null;
    this.isSilent = false;
    this.show(null);
  }

  /** Notes that a key was sent. */
  typed() {
    this.typedAt = performance.now();
    this.next = Math.min(this.next, this.typedAt + AFTER_KEYS);
  }

  /** Returns once whether keys were sent that the desktop may not have. */
  takeUnsure() {
    const isUnsure = this.typedAt > 0;
    this.typedAt = 0;
    return isUnsure;
  }

  /** Notes that data arrived, so the connection is alive. */
  heard() {
    this.last = performance.now();
    if (!this.isSilent) return;
    this.isSilent = false;
    this.silent(false);
  }

  answered() {
    if (this.ask === null || this.asked === null) return;
    // A desktop reads everything before a question before it responds.
    if (this.typedAt <= this.asked) this.typedAt = 0;
    this.times = [...this.times, performance.now() - this.asked].slice(-KEPT);
    this.asked = null;
    const sorted = [...this.times].sort((one, other) => one - other);
    this.show(sorted[Math.floor(sorted.length / 2)]);
  }

  hurry() {
    this.next = 0;
    this.look();
  }

  look() {
    if (this.ask === null || document.hidden) return;
    const now = performance.now();
    if (this.asked === null) {
      if (now < this.next) return;
      this.asked = now;
      this.next = now + EVERY;
      this.ask();
      return;
    }
    // Only desktops that have responded before are considered lost.
    const waited = this.times.length ? now - Math.max(this.asked, this.last) : 0;
    if (waited > ANSWER) {
      this.end();
      this.lost();
    } else if (waited > SLOW_ANSWER && !this.isSilent) {
      this.isSilent = true;
      this.silent(true);
    }
  }
}
