// What a shell writes, followed by its offset: nothing is shown twice, and nothing is left out.
import { language, text } from "./texts.js";

// CAN ends any sequence, RIS (ESC c) resets the terminal (ECMA-48, 8.3.6 and 8.3.105). Written and
// not called: what came before is read first.
const AFRESH = "\x18\x1bc";
// Asked for at first: about as much as the terminal keeps.
const LAST = 1_000_000;
const ACKNOWLEDGED = 65_536;

const isOffset = (value) => Number.isSafeInteger(value) && value >= 0;

/** Says how much a number of bytes is: "70 kB", "12.3 MB". */
function amount(bytes) {
  if (bytes < 1e6) return `${Math.max(1, Math.round(bytes / 1e3))} kB`;
  const digits = { minimumFractionDigits: 1, maximumFractionDigits: 1 };
  return `${(bytes / 1e6).toLocaleString(language, digits)} MB`;
}

export class Output {
  constructor(terminal) {
    this.terminal = terminal;
    // Whose output it is, and up to where it was received; null with a hub that does not say so.
    this.stream = null;
    this.offset = null;
    this.tell = () => {};
    this.shown = 0;
    this.acknowledged = 0;
    // What was written before somebody attached: what it asked the terminal was answered, or is
    // waited for no more.
    this.past = [0, 0];
    this.muteQueries();
  }

  /** From where the next connection is to go on. */
  query() {
    return this.offset === null ? `after=-${LAST}` : `after=${this.offset}&stream=${this.stream}`;
  }

  /** The next connection is to another shell. */
  forget() {
    this.stream = this.offset = null;
  }

  /** Begin with what follows; tell(offset) is called now and then with what has been shown. */
  begin({ stream, offset, end }, tell) {
    const told = typeof stream === "string" && isOffset(offset) && isOffset(end);
    const past = told ? [offset, end] : [0, 0];
    this.tell = tell;
    if (told && stream === this.stream && offset === this.offset) {
      this.past = past;
    } else {
      this.stream = told ? stream : null;
      this.offset = told ? offset : null;
      this.terminal.write(AFRESH, () => {
        this.past = past;
        this.shown = past[0];
      });
    }
    this.acknowledged = past[0];
    if (told) tell(offset);
  }

  /** Show what the shell wrote. */
  take(bytes) {
    if (this.offset === null) {
      this.terminal.write(bytes);
      return;
    }
    const cut = this.past[1] - this.offset;
    const pieces = cut > 0 && cut < bytes.length ? [bytes.subarray(0, cut), bytes.subarray(cut)] : [bytes];
    for (const piece of pieces) this.write(piece, piece.length);
  }

  /** So much was left out. */
  skip(bytes) {
    if (!isOffset(bytes)) return;
    const note = `[${text("terminal.left_out", { amount: amount(bytes) })}]`;
    // A program that has the whole screen redraws it.
    const line = this.terminal.buffer.active.type === "normal" ? `\r\n\x1b[1m${note}\x1b[m\r\n` : "";
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

  /** Have the terminal answer nothing that was asked in the past. */
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
    // The window's size and place; the others of this kind change something.
    parser.registerCsiHandler({ final: "t" }, ([what]) => muted() && what >= 11 && what <= 21);
    for (const colour of [4, 10, 11, 12]) {
      parser.registerOscHandler(colour, (text) => muted() && text.includes("?"));
    }
    for (const intermediates of ["$", "+"]) parser.registerDcsHandler({ intermediates, final: "q" }, muted);
  }
}
