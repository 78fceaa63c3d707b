// One connection to a desktop or terminal, made again after it was lost, until it has ended.
import { fetchState, wait } from "./state.js";
import { text } from "./texts.js";

const LONGEST_PAUSE = 10_000;
// The gateway dials, and its other side opens, in less.
const LONGEST_OPENING = 20_000;
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
// One that is told to leave sooner than this may meet the same gateway again and again.
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

  ended(heading, words) {
    this.say("ended", text("link.ended"));
    this.show(heading, words, null);
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
    this.hurry = () => {};
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
      const opened = Date.now();
      const code = await this.once(() => (tries = 0));
      const atOnce = this.atOnce || (code === CLOSE_DRAINING && Date.now() - opened > SETTLED);
      this.atOnce = false;
      const asked = code === CLOSE_ENDED || code === CLOSE_GRANT_ENDED;
      const known = this.final ?? (asked ? null : ENDS[code]);
      const judged = known ?? (atOnce ? null : await this.judge());
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
        this.status.ended(...end);
        return;
      }
      if (atOnce) continue;
      if (Date.now() - opened > 30_000) tries = 0;
      const least = this.explained ? REFUSED_PAUSE : 0;
      const pause = Math.min(500 * 2 ** tries, LONGEST_PAUSE) * (0.75 + Math.random() / 2);
      await this.pause(Math.max(least, pause));
      this.explained = null;
      tries += 1;
    }
  }

  once(onOpen) {
    return new Promise((done) => {
      const scheme = location.protocol === "https:" ? "wss:" : "ws:";
      const query = this.query();
      const address = `${scheme}//${location.host}/.fumarole/connect${query && `?${query}`}`;
      const socket = new WebSocket(address, this.protocol);
      // What is given up may take minutes to close.
      const drop = () => {
        socket.close();
        done(1006);
      };
      this.drop = drop;
      // Where nothing answers, a browser would try for minutes, ever more seldom.
      setTimeout(() => socket.readyState === WebSocket.CONNECTING && drop(), LONGEST_OPENING);
      socket.binaryType = "arraybuffer";
      socket.addEventListener("open", onOpen);
      this.use(socket);
      // After the caller's listeners, which may say how this is to be understood.
      socket.addEventListener("close", (event) => done(event.code));
    });
  }

  /** A refused upgrade shows a script no status; this does. */
  async judge() {
    const lost = () => this.status.lost(this.explained?.[0] ?? text("link.lost"), text("link.connecting_again"), null);
    // Where nothing answers, that takes ten seconds to be known.
    const slow = setTimeout(lost, SLOW);
    const now = await fetchState();
    clearTimeout(slow);
    this.isOpen = now.http === 200;
    if (now.http in BY_STATUS) return told(now) ?? ENDS[BY_STATUS[now.http]];
    this.reason = {
      0: text("link.unreachable"),
      200: now.state === "starting" ? now.text || now.message || text("link.starting") : "",
      503: text("link.unavailable"),
    }[now.http];
    return null;
  }

  async pause(milliseconds) {
    const [heading, reason] = this.explained ?? [text("link.lost"), this.reason];
    const until = Date.now() + milliseconds;
    let hurried = false;
    const hurry = new Promise((done) => (this.hurry = () => done((hurried = true))));
    addEventListener("online", this.hurry, { once: true });
    // Nobody waits for a page that nobody sees, and its timers are slow.
    const seen = () => document.hidden || this.hurry();
    document.addEventListener("visibilitychange", seen);
    while (!hurried && Date.now() < until) {
      const seconds = Math.ceil((until - Date.now()) / 1000);
      const words = `${reason ? `${reason} ` : ""}${text("link.again", { seconds })}`;
      this.status.lost(heading, words, () => this.hurry());
      await Promise.race([hurry, wait(Math.min(1000, until - Date.now()))]);
    }
    removeEventListener("online", this.hurry);
    document.removeEventListener("visibilitychange", seen);
    this.status.lost(heading, text("link.connecting_again"), null);
  }
}

/** What the gateway says of a session that has ended, if it says something. */
const told = (now) => (now.title ? [now.title, `${now.text} ${text("link.close_tab")}`] : null);
