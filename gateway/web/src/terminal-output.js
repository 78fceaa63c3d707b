// The output of a shell, tracked by its byte offset: nothing is shown twice or left out.
import { language, text } from "./texts.js";

// CAN ends any sequence, RIS (ESC c) resets the terminal (ECMA-48, 8.3.6 and 8.3.105). It is written
// to the terminal, instead of a call of reset(), so that earlier output is processed first.
const AFRESH = "\x18\x1bc";
// The output requested at first: about as much as the terminal's scrollback holds.
const LAST = 1_000_000;
const ACKNOWLEDGED = 65_536;

const bold = (note) => `\x1b[1m[${note}]\x1b[m\r\n`;

const isOffset = (value) => Number.isSafeInteger(value) && value >= 0;

/** Returns a number of bytes as text: "70 kB", "12.3 MB". */
function amount(bytes) {
  if (bytes < 1e6) return `${Math.max(1, Math.round(bytes / 1e3))} kB`;
  const digits = { minimumFractionDigits: 1, maximumFractionDigits: 1 };
  return `${(bytes / 1e6).toLocaleString(language, digits)} MB`;
}

export class Output {
  constructor(terminal) {
    this.terminal = terminal;
    // The id of the shell's output and the received offset; null with hubs that do not send them.
    this.stream = null;
    this.offset = null;
    this.tell = () => {};
    this.shown = 0;
    this.acknowledged = 0;
    // The range of output from before the attach. Queries in it were answered then, or are stale.
    this.past = [0, 0];
    this.muteQueries();
  }

  /** Returns the query that makes the next connection continue at the received offset. */
  query() {
    return this.offset === null ? `after=-${LAST}` : `after=${this.offset}&stream=${this.stream}`;
  }

  /** Forgets the offset: the next connection is to another shell. */
  forget() {
    this.stream = this.offset = null;
  }

  /** Begins a connection; calls tell(offset) with the shown offset, about every 64 KiB. */
  begin({ stream, offset, end }, tell) {
    const told = typeof stream === "string" && isOffset(offset) && isOffset(end);
    const past = told ? [offset, end] : [0, 0];
    this.tell = tell;
    if (told && stream === this.stream && offset === this.offset) {
      this.past = past;
    } else {
      // The earlier shell's output is gone, for example with its pod.
      const note = told && this.stream !== null && stream !== this.stream ? bold(text("terminal.another")) : "";
      this.stream = told ? stream : null;
      this.offset = told ? offset : null;
      this.terminal.write(AFRESH + note, () => {
        this.past = past;
        this.shown = past[0];
      });
    }
    this.acknowledged = past[0];
    if (told) tell(offset);
  }

  /** Shows output of the shell. */
  take(bytes) {
    if (this.offset === null) {
      this.terminal.write(bytes);
      return;
    }
    const cut = this.past[1] - this.offset;
    const pieces = cut > 0 && cut < bytes.length ? [bytes.subarray(0, cut), bytes.subarray(cut)] : [bytes];
    for (const piece of pieces) this.write(piece, piece.length);
  }

  /** Notes that the hub has left out some bytes. */
  skip(bytes) {
    if (!isOffset(bytes)) return;
    const note = bold(text("terminal.left_out", { amount: amount(bytes) }));
    // A program on the alternate screen redraws it itself.
    const line = this.terminal.buffer.active.type === "normal" ? `\r\n${note}` : "";
    this.write(`\x18\x1b[m${line}`, bytes);
  }

  write(data, length) {
    const { stream } = this;
    if (this.offset !== null) this.offset += length;
    const until = this.offset;
    this.terminal.write(data, () => {
      if (until === null || stream !== this.stream) return;
      this.shown = until;
      if (until - this.acknowledged < ACKNOWLEDGED) return;
      this.acknowledged = until;
      this.tell(until);
    });
  }

  /** Makes the terminal ignore queries in output from before the attach. */
  muteQueries() {
    const { parser } = this.terminal;
    const muted = () => this.shown >= this.past[0] && this.shown < this.past[1];
    for (const id of [
      { final: "c" }, // DA: what are you
      { prefix: ">", final: "c" },
      { prefix: "=", final: "c" },
      { final: "n" }, // DSR: where is the cursor
      { prefix: "?", final: "n" },
      { prefix: ">", final: "q" }, // XTVERSION
      { intermediates: "$", final: "p" }, // DECRQM: which modes
      { prefix: "?", intermediates: "$", final: "p" },
      { prefix: "?", final: "u" },
    ]) {
      parser.registerCsiHandler(id, muted);
    }
    // Reports of the window's size and position; other values of this sequence change the window.
    parser.registerCsiHandler({ final: "t" }, ([what]) => muted() && what >= 11 && what <= 21);
    for (const colour of [4, 10, 11, 12]) {
      parser.registerOscHandler(colour, (text) => muted() && text.includes("?"));
    }
    for (const intermediates of ["$", "+"]) parser.registerDcsHandler({ intermediates, final: "q" }, muted);
  }
}
