// How long the way to the other side and back takes, and whether it is still there: a network that
// was cut tells nobody.
import { onReturn } from "./state.js";

const EVERY = 5_000;
const ANSWER = 15_000;
const KEPT = 5;

export class RoundTrip {
  /** show(milliseconds) is told how long it takes, null for nothing known; lost() that nothing comes any more. */
  constructor(show, lost) {
    this.show = show;
    this.lost = lost;
    this.ask = null;
    setInterval(() => this.look(), 1000);
    onReturn(() => this.hurry());
  }

  /** There is a connection; ask() has the other side answer. */
  begin(ask) {
    this.ask = ask;
    this.asked = null;
    this.times = [];
    this.last = performance.now();
    // What is shown first is large, and would count.
    this.next = this.last + 1000;
  }

  end() {
    this.ask = null;
    this.show(null);
  }

  /** Something came, so there is a way. */
  heard() {
    this.last = performance.now();
  }

  answered() {
    if (this.ask === null || this.asked === null) return;
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
    } else if (this.times.length && now - Math.max(this.asked, this.last) > ANSWER) {
      // Of those that never answer nothing is known.
      this.end();
      this.lost();
    }
  }
}
