// One connection to a desktop or terminal, made again after it was lost, until it has ended.
import { fetchState, onReturn, wait } from "./state.js";
import { text } from "./texts.js";

const LONGEST_PAUSE = 10_000;
// The gateway dials, its other side opens, and says its first word, in less.
const LONGEST_OPENING = 20_000;
// A browser opens one WebSocket to an address at a time, and an app may let another tab's wait.
const LONGEST_QUEUE = 60_000;
const LOOK_AGAIN = 5_000;
// Of what somebody did: read, and gone.
const NOTED = 5_000;
// A side that refused will most likely refuse again, and may count how often it was asked.
const REFUSED_PAUSE = 8_000;
const ENDS = {
  4401: [text("link.grant_ended"), text("link.grant_ended_text")],
  4410: [text("link.session_ended"), text("link.session_ended_text")],
  1008: [text("link.refused"), text("link.refused_text")],
};
// Of these the gateway knows more than the code says.
const CLOSE_GRANT_ENDED = 4401;
const CLOSE_ENDED = 4410;
// The gateway drains, and another one is there: nothing is to be waited for.
const CLOSE_DRAINING = 1001;
// What is answered sooner is shown without a word about a connection that was lost.
const SLOW = 500;
// One that ends sooner than this may meet the same gateway, or the same end, again and again.
const SETTLED = 1000;
const BY_STATUS = { 401: 4401, 403: 4401, 404: 4410, 410: 4410 };

/** Shows what the link is doing: in the bar, and over the screen while there is nothing to see. */
export class Status {
  constructor() {
    this.line = document.querySelector(".state");
    this.notice = document.querySelector("#notice");
    this.heading = this.notice.querySelector("h2");
    this.text = this.notice.querySelector("p");
    this.button = this.notice.querySelector("button");
    this.prompting = false;
    this.said = ["busy", this.line.querySelector("span").textContent];
    this.noted = 0;
  }

  open() {
    this.say("open", text("link.connected"));
    this.notice.hidden = true;
  }

  /** Says for a moment what came of something; how the link is doing stays as it is. */
  note(words) {
    clearTimeout(this.noted);
    this.write(this.said[0], words);
    this.noted = setTimeout(() => this.write(...this.said), NOTED);
  }

  lost(heading, words, again) {
    this.say("busy", text("link.disconnected"));
    // Somebody is typing what the next connection needs.
    if (!this.prompting) this.show(heading, words, again);
  }

  /** Something of the page's own is asked for; no card is put over it, until promptDone(). */
  prompt(words) {
    this.prompting = true;
    this.say("busy", words);
    this.notice.hidden = true;
  }

  promptDone() {
    this.prompting = false;
  }

  connecting() {
    this.promptDone();
    this.say("busy", text("link.connecting"));
    this.show(text("link.connecting"), "", null);
  }

  /** Says that the session has ended, or (of: "access") the access to it, and where to go on. */
  ended(heading, words, of) {
    this.say("ended", text("link.ended"));
    this.show(heading, words, null);
    const way = this.notice.querySelector(`[data-of="${of}"]`);
    if (way) {
      way.hidden = this.button.parentElement.hidden = false;
      this.button.hidden = true;
    }
    // What needs a connection is of no use any more, and no key is taken.
    for (const tool of document.querySelectorAll(".tools [data-live]")) tool.hidden = true;
    document.querySelector('[aria-describedby="way-out"]')?.removeAttribute("aria-describedby");
  }

  /** Say how it ended, below what can still be read, and resolve when the button is pressed. */
  offer(heading, words, label) {
    return new Promise((done) => {
      const usual = this.button.textContent;
      this.say("ended", text("link.ended"));
      this.button.textContent = label;
      this.notice.classList.add("below");
      this.show(heading, words, () => {
        this.button.textContent = usual;
        this.notice.classList.remove("below");
        done();
      });
      this.button.focus();
    });
  }

  say(state, words) {
    const same = this.said[0] === state && this.said[1] === words;
    if (same) return;
    clearTimeout(this.noted);
    this.said = [state, words];
    this.write(state, words);
  }

  write(state, words) {
    const span = this.line.querySelector("span");
    this.line.dataset.state = state;
    // Only what changes is read out.
    if (span.textContent !== words) span.textContent = words;
  }

  /** Says more of what is shown already. */
  add(words) {
    if (this.text.textContent !== words) this.text.textContent = words;
  }

  show(heading, words, again) {
    this.heading.textContent = heading;
    this.text.textContent = words;
    this.button.parentElement.hidden = !again;
    this.button.onclick = again;
    this.notice.hidden = false;
  }
}

/**
 * Keeps connecting: calls use(socket) for each new socket, in which the caller sets its own
 * listeners, and query() for what is said with it. Returns when the session or the access to it has ended, or after stop().
 */
export class Link {
  constructor(protocol, status, use, query = () => "") {
    this.protocol = protocol;
    this.status = status;
    this.use = use;
    this.query = query;
    this.final = null;
    this.button = null;
    this.drop = () => {};
    this.explained = null;
    this.atOnce = false;
    this.isOpen = false;
    this.sessionIsOver = false;
    this.reason = "";
    // Ends what is waited for; null while there is a connection.
    this.cutShort = () => {};
    this.isHurried = false;
    onReturn(() => this.hurry());
  }

  /** Connect now: whatever is waited for may have been meant for a network that is gone. */
  hurry() {
    if (!this.cutShort) return;
    this.isHurried = true;
    this.cutShort();
  }

  /** Connect once more without a pause, after this connection: nothing was lost. */
  again() {
    this.atOnce = true;
  }

  /** Say why this connection is not to be had, other than that it was lost. */
  explain(heading, words) {
    this.explained ??= [heading, words];
  }

  /** Say why there will be no other connection (an exit, say), unless a button asks for one. */
  stop(heading, words, button = null) {
    this.final = [heading, words];
    this.button = button;
  }

  async run() {
    let tries = 0;
    for (;;) {
      const opened = performance.now();
      const { code, settled } = await this.once(() => (tries = 0));
      const lasted = performance.now() - opened;
      const atOnce = this.atOnce || (code === CLOSE_DRAINING && lasted > SETTLED);
      this.atOnce = false;
      const asked = code === CLOSE_ENDED || code === CLOSE_GRANT_ENDED;
      const known = this.final ?? (asked ? null : ENDS[code]);
      // What was there a moment ago most likely still is, and to connect again tells that sooner.
      const skipsJudge = atOnce || (!asked && (settled || this.isHurried));
      if (skipsJudge) this.reason = "";
      const judged = known ?? (skipsJudge ? null : await this.judge());
      // The access that this connection had is over; its user may have come back, in another tab.
      const renewed = code === CLOSE_GRANT_ENDED && this.isOpen;
      const end = judged ?? (renewed ? null : ENDS[code]);
      if (end && end === this.final && this.button) {
        await this.status.offer(...end, this.button);
        this.final = null;
        this.status.connecting();
        continue;
      }
      if (end) {
        this.status.ended(...end, this.sessionIsOver ? "session" : "access");
        return;
      }
      if (atOnce) continue;
      if (lasted > 30_000) tries = 0;
      const least = this.explained ? REFUSED_PAUSE : 0;
      const pause = Math.min(500 * 2 ** tries, LONGEST_PAUSE) * (0.75 + Math.random() / 2);
      if (await this.pause(Math.max(least, pause))) tries = 0;
      else tries += 1;
      this.explained = null;
    }
  }

  /** Make one connection; resolve to how it ended, and whether it had stood for a while. */
  once(onHeard) {
    return new Promise((done) => {
      const scheme = location.protocol === "https:" ? "wss:" : "ws:";
      // An answer that waits for what is behind would hold up the browser's other tabs.
      const query = [this.query(), "answer=soon"].filter(Boolean).join("&");
      const address = `${scheme}//${location.host}/.fumarole/connect?${query}`;
      const socket = new WebSocket(address, this.protocol);
      const begun = performance.now();
      let heard = null;
      let ended = false;
      const end = (code) => {
        // One that was given up ends once more, later.
        if (ended) return;
        ended = true;
        this.cutShort = () => {};
        done({ code, settled: heard !== null && performance.now() - heard > SETTLED });
      };
      // What is given up may take minutes to close.
      const drop = () => {
        socket.close();
        end(1006);
      };
      this.drop = drop;
      this.cutShort = () => performance.now() - begun > SETTLED && drop();
      socket.binaryType = "arraybuffer";
      socket.addEventListener(
        "message",
        () => {
          onHeard();
          heard = performance.now();
          this.cutShort = null;
          this.isHurried = false;
        },
        { once: true },
      );
      this.use(socket);
      // After the caller's listeners, which may say how this is to be understood.
      socket.addEventListener("close", (event) => end(event.code));
      this.watch(socket, begun, () => ended || heard !== null).then((gone) => gone && drop());
    });
  }

  /**
   * Resolve to whether a socket is to be given up, until it is over. Where nothing answers, a browser would
   * try for minutes, ever more seldom; where a network was cut after the upgrade, it would wait for good.
   */
  async watch(socket, begun, isOver) {
    for (;;) {
      await wait(LOOK_AGAIN);
      if (isOver()) return false;
      const isQueued = socket.readyState === WebSocket.CONNECTING && (await fetchState()).http === 200;
      if (isOver()) return false;
      if (isQueued) this.status.add(text("link.queued"));
      if (performance.now() - begun > (isQueued ? LONGEST_QUEUE : LONGEST_OPENING)) return true;
    }
  }

  /** A refused upgrade shows a script no status; this does. */
  async judge() {
    const lost = () => this.status.lost(this.explained?.[0] ?? text("link.lost"), text("link.connecting_again"), null);
    // Where nothing answers, that takes ten seconds to be known.
    const slow = setTimeout(lost, SLOW);
    const cut = new Promise((done) => (this.cutShort = () => done({ http: 0 })));
    const now = await Promise.race([fetchState(), cut]);
    clearTimeout(slow);
    this.isOpen = now.http === 200;
    this.sessionIsOver = BY_STATUS[now.http] === CLOSE_ENDED;
    if (now.http in BY_STATUS) return told(now) ?? ENDS[BY_STATUS[now.http]];
    this.reason = {
      0: text("link.unreachable"),
      200: now.state === "starting" ? now.text || now.message || text("link.starting") : "",
      503: text("link.unavailable"),
    }[now.http];
    return null;
  }

  /** Wait; return whether somebody was in a hurry. */
  async pause(milliseconds) {
    const [heading, reason] = this.explained ?? [text("link.lost"), this.reason];
    // Not by the clock, which may be set back meanwhile.
    const until = performance.now() + milliseconds;
    const hurried = new Promise((done) => (this.cutShort = done));
    for (let left = milliseconds; left > 0 && !this.isHurried; left = until - performance.now()) {
      const again = text("link.again", { seconds: Math.ceil(left / 1000) });
      this.status.lost(heading, reason ? `${reason} ${again}` : again, () => this.hurry());
      await Promise.race([hurried, wait(Math.min(1000, left))]);
    }
    const was = this.isHurried;
    this.isHurried = false;
    this.status.lost(heading, text("link.connecting_again"), null);
    return was;
  }
}

/** What the gateway says of a session that has ended, if it says something. */
const told = (now) => (now.title ? [now.title, `${now.text} ${text("link.close_tab")}`] : null);
