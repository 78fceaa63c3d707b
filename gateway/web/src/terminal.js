// A terminal: xterm.js on one side, the hub's protocol (binary: bytes, text: JSON) on the other.
import "./adopted-styles.js";
import { FitAddon } from "@xterm/addon-fit";
import { WebLinksAddon } from "@xterm/addon-web-links";
import { Terminal } from "@xterm/xterm";
import { guardCopy, mayCopy, mayPaste, onPaste, pasteable } from "./clipboard.js";
import { Link, Status } from "./link.js";

const PROTOCOL = "fumarole.terminal.v1";
const PIECE = 65536;
const MOST_CELLS = 4096;
// CAN ends any sequence, RIS (ESC c) resets the terminal (ECMA-48, 8.3.6 and 8.3.105).
const AFRESH = Uint8Array.of(0x18, 0x1b, 0x63);

const screen = document.querySelector(".screen");
const status = new Status();
const encoder = new TextEncoder();
let canType = document.body.dataset.mode === "control";
let socket = null;
let attached = false;

// Told while a shell holds what a user has typed who was revoked since.
const revoked = document.querySelector("#revoked");
const renew = document.querySelector("#renew");
document.querySelector("#keep").onclick = () => dismiss();
if (renew) {
  renew.onclick = () => {
    if (attached && canType) socket.send(JSON.stringify({ type: "renew" }));
    dismiss();
  };
}

function dismiss() {
  revoked.hidden = true;
  terminal.focus();
}

const terminal = new Terminal({
  cursorBlink: !matchMedia("(prefers-reduced-motion: reduce)").matches,
  disableStdin: !canType,
  fontFamily: 'ui-monospace, "Cascadia Mono", "DejaVu Sans Mono", Menlo, Consolas, monospace',
  fontSize: 14,
  macOptionIsMeta: true,
  scrollback: 10_000,
  theme: { background: "#101214", foreground: "#e6e4e1", cursor: "#f0906a" },
});
const fit = new FitAddon();
terminal.loadAddon(fit);
terminal.loadAddon(new WebLinksAddon());
terminal.open(screen.querySelector(".terminal-screen"));
// What tests and people with a console may look at.
globalThis.fumaroleTerminal = terminal;

function send(bytes) {
  if (!attached || !canType) return;
  for (let start = 0; start < bytes.length; start += PIECE) {
    socket.send(bytes.subarray(start, start + PIECE));
  }
}

function tellSize() {
  if (attached && canType) {
    socket.send(JSON.stringify({ type: "resize", cols: terminal.cols, rows: terminal.rows }));
  }
}

terminal.onData((text) => send(encoder.encode(text)));
terminal.onBinary((text) => send(Uint8Array.from(text, (character) => character.charCodeAt(0))));
terminal.onResize(tellSize);
terminal.onTitleChange((title) => {
  document.title = title ? `${title} · ${document.body.dataset.title}` : document.body.dataset.title;
});

// Who only looks on sees the size of the one who types.
const refit = () => canType && fit.fit();
new ResizeObserver(() => requestAnimationFrame(refit)).observe(screen);

/** Return what a text says, null where it is no message: nothing of it may end the page. */
function readMessage(text) {
  try {
    const message = JSON.parse(text);
    return typeof message === "object" ? message : null;
  } catch {
    return null;
  }
}

/** Take the size that the terminal has elsewhere. */
function takeSize({ cols, rows }) {
  const fits = (count) => Number.isInteger(count) && count >= 1 && count <= MOST_CELLS;
  if (!canType && fits(cols) && fits(rows)) terminal.resize(cols, rows);
}

const handlers = {
  attached(message) {
    canType = message.mode === "control";
    terminal.options.disableStdin = !canType;
    attached = true;
    // Another shell, perhaps; what has to be told of it follows.
    revoked.hidden = true;
    // The scrollback that follows holds all that was shown before. Written and not called: what came
    // before is read first, and a sequence that the end of a connection has cut takes no character.
    terminal.write(AFRESH);
    if (canType) {
      refit();
      tellSize();
    } else {
      takeSize(message);
    }
    status.open();
    terminal.focus();
  },
  resized: takeSize,
  revoked_input() {
    revoked.hidden = false;
  },
  exit({ code, message }) {
    const text = message || (code === null ? "" : `It ended with code ${code}.`);
    link.stop("The shell has ended", text || "You can close this tab.");
  },
};

const link = new Link(PROTOCOL, status, (fresh) => {
  socket = fresh;
  attached = false;
  fresh.addEventListener("message", ({ data }) => {
    if (typeof data !== "string") {
      terminal.write(new Uint8Array(data));
      return;
    }
    const message = readMessage(data);
    if (message && Object.hasOwn(handlers, message.type)) handlers[message.type](message);
  });
  fresh.addEventListener("close", () => {
    if (socket === fresh) attached = false;
  });
});

// Copy and paste: by buttons, and by the keys that terminals use, since Ctrl+C interrupts.

const canCopy = mayCopy && Boolean(navigator.clipboard?.writeText);
const canPaste = mayPaste && Boolean(navigator.clipboard?.readText);
const question = document.querySelector("#paste-question");

async function copy() {
  if (terminal.hasSelection()) await navigator.clipboard.writeText(terminal.getSelection());
  terminal.focus();
}

function pasteText(text) {
  const clean = pasteable(text);
  // A program that takes pastes as such does not run them line by line.
  if (clean.includes("\n") && !terminal.modes.bracketedPasteMode) ask(clean);
  else terminal.paste(clean);
}

function ask(text) {
  question.querySelector("pre").textContent = text;
  question.returnValue = "";
  question.onclose = () => {
    if (question.returnValue === "paste") terminal.paste(text);
    question.querySelector("pre").textContent = "";
    terminal.focus();
  };
  if (!question.open) question.showModal();
}

async function paste() {
  try {
    pasteText(await navigator.clipboard.readText());
  } catch {
    status.busy("The browser did not allow to paste; use Ctrl+Shift+V");
  }
  terminal.focus();
}

terminal.attachCustomKeyEventHandler((event) => {
  const isCopy = event.ctrlKey && event.shiftKey && event.code === "KeyC";
  if (!isCopy || (mayCopy && !canCopy)) return true;
  if (event.type === "keydown") {
    event.preventDefault();
    if (canCopy) copy();
  }
  return false;
});

const copyButton = document.querySelector("#copy");
const pasteButton = document.querySelector("#paste");
copyButton.hidden = !canCopy;
pasteButton.hidden = !canPaste;
copyButton.onclick = copy;
onPaste(screen, (text) => canType && pasteText(text));
guardCopy(screen);
pasteButton.onclick = paste;

refit();
link.run().then(() => {
  terminal.options.disableStdin = true;
  terminal.options.cursorBlink = false;
});
