// The input of a terminal: bytes typed during a short loss of the connection are sent after it.

const PIECE = 65536;
// A line with a gap in its middle may be another command. After a longer loss the user has seen the
// card, and may have gone on elsewhere: then nothing is sent that was typed meanwhile.
const HELD_MS = 3_000;
const HELD_BYTES = 4_096;

const ESCAPE = 0x1b;
// Reports of the mouse and the focus, answers to programs and arrow keys begin so.
const isText = (bytes) => bytes[0] !== ESCAPE;

export class Input {
  constructor() {
    this.socket = null;
    // The shell that has read the input so far.
    this.stream = null;
    this.lostAt = 0;
    this.held = [];
    this.heldBytes = 0;
    this.isCut = false;
  }

  /**
   * Sends to *socket* from now on, at first what is held, if it was typed into this shell. Returns
   * whether text was discarded.
   */
  attach(socket, stream) {
    const fits = stream !== null && stream === this.stream && this.isRecent();
    const held = fits ? this.held.splice(0) : [];
    this.forget();
    const { isCut } = this;
    this.isCut = false;
    this.socket = socket;
    this.stream = stream;
    held.forEach((bytes) => this.send(bytes));
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
    if (this.socket) {
      for (let start = 0; start < bytes.length; start += PIECE) {
        this.socket.send(bytes.subarray(start, start + PIECE));
      }
    } else if (this.isRecent() && this.heldBytes + bytes.length <= HELD_BYTES) {
      this.held.push(bytes);
      this.heldBytes += bytes.length;
    } else {
      this.held.push(bytes);
      this.forget();
      this.lostAt = -HELD_MS;
    }
  }

  isRecent() {
    return this.stream !== null && performance.now() - this.lostAt < HELD_MS;
  }

  /** Discards what is held. */
  forget() {
    this.isCut ||= this.held.some(isText);
    this.held = [];
    this.heldBytes = 0;
  }
}
