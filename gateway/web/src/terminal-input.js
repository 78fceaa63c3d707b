// The input of a terminal. It is kept until the shell has it, so that what a lost connection has
// swallowed is sent over the next one, once.

const PIECE = 32_768;
// More would fill the connection while a program reads nothing, and pings would get no answer.
const WINDOW = 131_072;
// A line with a gap in its middle may be another command. After a longer loss the user has seen the
// card, and may have gone on elsewhere: then nothing is sent that the shell does not have yet.
const HELD_MS = 3_000;
const HELD_BYTES = 4_096;

// An interrupt (Ctrl+C, Ctrl+\\, Ctrl+Z) passes a paste of which the shell has read nothing for so long.
const STALLED_MS = 1_000;
const INTERRUPTS = new Set([0x03, 0x1c, 0x1a]);
const isInterrupt = (bytes) => bytes.length === 1 && INTERRUPTS.has(bytes[0]);
// Between these, programs with bracketed paste take all keys as a part of the paste.
const PASTE_BEGINS = "\x1b[200~";
const PASTE_ENDS = new TextEncoder().encode("\x1b[201~");
const isWithinPaste = (piece) =>
  piece.byteOffset > 0 && String.fromCharCode(...new Uint8Array(piece.buffer).subarray(0, 6)) === PASTE_BEGINS;

const ESCAPE = 0x1b;
// Reports of the mouse and the focus, answers to programs and arrow keys begin so.
const isText = (bytes) => bytes[0] !== ESCAPE;

export class Input {
  constructor() {
    this.socket = null;
    // The shell that has read the input so far.
    this.stream = null;
    // How many bytes the shell has; null with hubs that do not tell.
    this.typed = null;
    // The bytes after those: sent, and not sent yet.
    this.sent = [];
    this.ahead = 0;
    this.waiting = [];
    // When the shell last read something, or had read everything.
    this.readAt = 0;
    this.heldBytes = 0;
    this.lostAt = 0;
    this.isCut = false;
  }

  /**
   * Sends to *socket* from now on, at first what this shell does not have yet: it has *typed* bytes.
   * Returns whether text was discarded.
   */
  attach(socket, stream, typed = null) {
    const isSame = stream !== null && stream === this.stream;
    const isKnown = isSame && (this.typed === null || this.drop(typed));
    const missing = isKnown ? [...this.sent, ...this.waiting] : this.waiting;
    const isKept = isKnown && this.isRecent();
    const isCut = this.isCut || (!isKept && missing.some(isText));
    const waiting = isKept ? missing : [];
    Object.assign(this, { socket, stream, typed, waiting, sent: [], ahead: 0, heldBytes: 0, isCut: false });
    this.flush();
    return isCut;
  }

  /** Holds the input from now on. */
  detach() {
    if (!this.socket) return;
    this.socket = null;
    this.lostAt = performance.now();
  }

  send(bytes) {
    // Between a Close and the event that reports it, a browser discards silently what is sent.
    if (this.socket && this.socket.readyState !== WebSocket.OPEN) this.detach();
    for (let start = 0; start < bytes.length; start += PIECE) {
      this.waiting.push(bytes.subarray(start, start + PIECE));
    }
    if (this.socket) {
      this.flush();
      return;
    }
    this.heldBytes += bytes.length;
    if (this.isRecent() && this.heldBytes <= HELD_BYTES) return;
    this.isCut ||= this.waiting.some(isText);
    this.waiting = [];
    this.lostAt = -HELD_MS;
  }

  /** Notes that the shell has everything before *offset*. */
  acknowledge(offset) {
    if (this.drop(offset)) this.flush();
  }

  flush() {
    while (this.waiting.length && (this.typed === null || this.ahead + this.waiting[0].length <= WINDOW)) {
      this.sendNext();
    }
  }

  sendNext() {
    const piece = this.waiting.shift();
    this.socket.send(piece);
    if (this.typed === null) return;
    if (!this.ahead) this.readAt = performance.now();
    this.sent.push(piece);
    this.ahead += piece.length;
  }

  /** Sends an interrupt that waits behind a paste of which the shell reads nothing; discards the rest, not its end. */
  interrupt() {
    const at = this.waiting.findLastIndex(isInterrupt);
    if (at < 0 || !this.socket || performance.now() - this.readAt < STALLED_MS) return;
    const [first] = this.waiting.splice(0, at);
    if (first && isWithinPaste(first)) {
      this.waiting.unshift(PASTE_ENDS);
      this.sendNext();
    }
    this.sendNext();
    this.flush();
  }

  /** Forgets what is before *offset*; returns whether all of that was sent. */
  drop(offset) {
    let count = Number.isSafeInteger(offset) ? offset - this.typed : -1;
    if (this.typed === null || count < 0 || count > this.ahead) return false;
    this.typed = offset;
    this.ahead -= count;
    this.readAt = performance.now();
    while (count > 0) {
      const piece = this.sent.shift();
      if (piece.length > count) this.sent.unshift(piece.subarray(count));
      count -= piece.length;
    }
    return true;
  }

  isRecent() {
    return this.stream !== null && performance.now() - this.lostAt < HELD_MS;
  }
}
