// The connection to a desktop or terminal: reconnects after a loss, until the session has ended.
import { fetchState, onReturn, reloadOnceSignedIn, wait } from "./state.js";
import { text } from "./texts.js";

// A random quarter is added or taken.
const LONGEST_PAUSE = 8_000;
// The gateway has connected to the app and received its first message within this time.
const LONGEST_OPENING = 20_000;
// A browser opens one WebSocket per address at a time (RFC 6455, 4.1), so another tab may block.
const LONGEST_QUEUE = 60_000;
const LOOK_AGAIN = 5_000;
// If so many upgrades in a row fail while the session is ready, something on the way blocks them.
const BLOCKED_TRIES = 3;
// How long the result of a user's action is shown.
const NOTED = 5_000;
// A server that refused will most likely refuse again, and may count attempts.
const REFUSED_PAUSE = 8_000;
const ENDS = {
  4401: [text("link.grant_ended"), text("link.grant_ended_text")],
  4410: [text("link.session_ended"), text("link.session_ended_text")],
  1008: [text("link.refused"), text("link.refused_text")],
};
// For these the state of the session has more details than the close code.
const CLOSE_GRANT_ENDED = 4401;
const CLOSE_ENDED = 4410;
// The gateway drains and another one is ready: reconnect at once.
const CLOSE_DRAINING = 1001;
// If the state is known sooner, the page does not show that the connection was lost.
const SLOW = 500;
// A connection that ends sooner may meet the same gateway or the same failure again.
const SETTLED = 1000;
const NO_CONNECTION = { code: null, settled: false };
const BY_STATUS = { 401: 4401, 403: 4401, 404: 4410, 410: 4410 };

/** Shows the state of the link in the bar, and on a card over the screen while it is not open. */
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

  /** Shows that the connection is there, and nothing arrives over it. */
  silent() {
    this.say("busy", text("link.silent"));
  }

  /** Shows the result of an action for a moment, then the state of the link again. */
  note(words) {
    clearTimeout(this.noted);
    this.write(this.said[0], words);
    this.noted = setTimeout(() => this.write(...this.said), NOTED);
  }

  lost(heading, words, again) {
    this.say("busy", text("link.disconnected"));
    // The user is typing the password that the next connection needs.
    if (!this.prompting) this.show(heading, words, again);
  }

  /** The page prompts the user; no card covers the prompt until promptDone(). */
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

  /** Shows that the session, or (of: "access") the access to it, has ended, with a link. */
  ended(heading, words, of) {
    this.say("ended", text("link.ended"));
    this.show(heading, words, null);
    const way = this.notice.querySelector(`[data-of="${of}"]`);
    if (way) {
      way.hidden = this.button.parentElement.hidden = false;
      this.button.hidden = true;
    }
    // Hide the tools that need a connection. The screen takes no keys any more.
    for (const tool of document.querySelectorAll(".tools [data-live]")) tool.hidden = true;
    document.querySelector('[aria-describedby="way-out"]')?.removeAttribute("aria-describedby");
  }

  /** Shows how the shell ended, below its output, and resolves when the button is pressed. */
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
    // Screen readers announce each change, so an unchanged text is not set again.
    if (span.textContent !== words) span.textContent = words;
  }

  /** Replaces the text below the heading. */
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
 * Keeps a connection. Calls use(socket) for each new socket, where the caller adds its listeners,
 * and query() for the query of its URL. Returns when the session or the access to it has ended, or
 * after stop().
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
    // While the session is not ready, only its state is polled. After each WebSocket that fails, Firefox
    // delays the next one longer, up to a minute, for all sessions of a gateway.
    this.isReady = true;
    this.sessionIsOver = false;
    this.isUpgraded = false;
    this.blockedTries = 0;
    this.reason = "";
    // Ends the current wait; null while there is a connection.
    this.cutShort = () => {};
    this.isHurried = false;
    onReturn(() => this.hurry());
  }

  /** Connects now: the current wait may be for a network that is gone. */
  hurry() {
    if (!this.cutShort) return;
    this.isHurried = true;
    this.cutShort();
  }

  /** Reconnects without a pause after this connection, which was not lost. */
  again() {
    this.atOnce = true;
  }

  /** Sets the reason why this connection failed, if it was not lost. */
  explain(heading, words) {
    this.explained ??= [heading, words];
  }

  /** Sets the reason why the link does not reconnect (such as an exit), unless by a button. */
  stop(heading, words, button = null) {
    this.final = [heading, words];
    this.button = button;
  }

  async run() {
    let tries = 0;
    for (;;) {
      const opened = performance.now();
      const wasReady = this.isReady;
      const { code, settled } = wasReady ? await this.once(() => (tries = 0)) : NO_CONNECTION;
      const lasted = performance.now() - opened;
      const atOnce = this.atOnce || (code === CLOSE_DRAINING && lasted > SETTLED);
      this.atOnce = false;
      const asked = code === CLOSE_ENDED || code === CLOSE_GRANT_ENDED;
      const known = this.final ?? (asked ? null : ENDS[code]);
      // A session that was there a moment ago most likely still is, and reconnecting shows it sooner.
      const skipsJudge = atOnce || (!asked && (settled || this.isHurried));
      if (skipsJudge) Object.assign(this, { reason: "", isReady: true });
      const judged = known ?? (skipsJudge ? null : await this.judge());
      // The access of this connection has ended; the user may have signed in again in another tab.
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
        if (end === ENDS[CLOSE_GRANT_ENDED]) reloadOnceSignedIn();
        return;
      }
      if (atOnce || (this.isReady && !wasReady)) continue;
      if (lasted > 30_000) tries = 0;
      const least = this.explained ? REFUSED_PAUSE : 0;
      const pause = Math.min(500 * 2 ** tries, LONGEST_PAUSE) * (0.75 + Math.random() / 2);
      const isHurried = await this.pause(Math.max(least, pause));
      tries = isHurried ? 0 : tries + 1;
      this.isReady ||= isHurried;
      this.explained = null;
    }
  }

  /** Makes one connection; resolves to its close code, and whether it was open for a while. */
  once(onHeard) {
    return new Promise((done) => {
      const scheme = location.protocol === "https:" ? "wss:" : "ws:";
      // answer=soon: the upgrade does not wait for the app, which would block the browser's other tabs.
      const query = [this.query(), "answer=soon"].filter(Boolean).join("&");
      const address = `${scheme}//${location.host}/.fumarole/connect?${query}`;
      const socket = new WebSocket(address, this.protocol);
      const begun = performance.now();
      let heard = null;
      let ended = false;
      const end = (code) => {
        // A socket that was given up closes later, too.
        if (ended) return;
        ended = true;
        this.cutShort = () => {};
        done({ code, settled: heard !== null && performance.now() - heard > SETTLED });
      };
      // A socket that is given up may take minutes to close.
      const drop = () => {
        socket.close();
        end(1006);
      };
      this.drop = drop;
      this.cutShort = () => performance.now() - begun > SETTLED && drop();
      socket.binaryType = "arraybuffer";
      this.isUpgraded = false;
      // A proxy that waits for the end of a response delivers the upgrade when the gateway gives up.
      socket.addEventListener("open", () => (this.isUpgraded = performance.now() - begun < LONGEST_OPENING));
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
      // After the caller's listeners, which may call stop() or explain().
      socket.addEventListener("close", (event) => end(event.code));
      this.watch(socket, begun, () => ended || heard !== null).then((gone) => gone && drop());
    });
  }

  /**
   * Resolves to whether to give up a socket; checks until it is open or closed. If the server does
   * not respond, a browser tries for minutes; if the network fails after the upgrade, it waits for good.
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

  /** Fetches the state of the session, since a script cannot see the status of a refused upgrade. */
  async judge() {
    const lost = () => this.status.lost(this.explained?.[0] ?? text("link.lost"), text("link.connecting_again"), null);
    // If the gateway does not respond, the fetch takes ten seconds to fail.
    const slow = setTimeout(lost, SLOW);
    const cut = new Promise((done) => (this.cutShort = () => done({ http: 0 })));
    const now = await Promise.race([fetchState(), cut]);
    clearTimeout(slow);
    this.isOpen = now.http === 200;
    this.sessionIsOver = BY_STATUS[now.http] === CLOSE_ENDED;
    if (now.http in BY_STATUS) return told(now) ?? ENDS[BY_STATUS[now.http]];
    const isStarting = now.state === "starting";
    const hasTried = this.isReady;
    this.isReady = this.isOpen && !isStarting;
    // With answer=soon, the upgrade succeeds for every session that is ready.
    const isBlocked = hasTried && this.isReady && !this.isUpgraded;
    this.blockedTries = isBlocked ? this.blockedTries + 1 : 0;
    const ready = this.blockedTries < BLOCKED_TRIES ? "" : text("link.blocked");
    this.reason = {
      0: text("link.unreachable"),
      200: isStarting ? now.text || now.message || text("link.starting") : ready,
      503: text("link.unavailable"),
    }[now.http];
    return null;
  }

  /** Waits; resolves to whether the wait was cut short. */
  async pause(milliseconds) {
    const [heading, reason] = this.explained ?? [text("link.lost"), this.reason];
    // A monotonic clock, since the system's may be set back.
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

/** Returns the gateway's texts about a session that has ended, null if there are none. */
const told = (now) => (now.title ? [now.title, `${now.text} ${text("link.close_tab")}`] : null);
