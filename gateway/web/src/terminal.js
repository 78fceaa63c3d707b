// A terminal: connects xterm.js to the hub's protocol (binary messages: bytes, text messages: JSON).
import "./adopted-styles.js";
import { FitAddon } from "@xterm/addon-fit";
import { WebLinksAddon } from "@xterm/addon-web-links";
import { Terminal } from "@xterm/xterm";
import { guardCopy, mayCopy, mayPaste, onPaste, pasteable } from "./clipboard.js";
import { connectedAgain, endIsOver, tellEnd } from "./ends.js";
import { Link, Status } from "./link.js";
import { onReturn } from "./state.js";
import { Input } from "./terminal-input.js";
import { joinKeys } from "./terminal-keys.js";
import { FIRST_LOOK, joinLook } from "./terminal-look.js";
import { Output } from "./terminal-output.js";
import { joinScroll } from "./terminal-scroll.js";
import { joinSearch } from "./terminal-search.js";
import { joinShells, randomName } from "./terminal-shells.js";
import { joinWidths } from "./terminal-widths.js";
import { text } from "./texts.js";
import { describe, joinWayOut } from "./way-out.js";

const PROTOCOL = "fumarole.terminal.v1";
const MOST_CELLS = 4096;
// A network failure closes no WebSocket: a silent hub gets a ping, and must respond in time.
const SILENT = 15_000;
const ANSWER = 10_000;
// Nobody types on into a screen that says nothing, so input gets a ping sooner.
const SILENT_INPUT = 1_500;
// A ping that is unanswered for so long is shown.
const SLOW_ANSWER = 2_500;
// The shorter deadline after the user returns to the page, when the connection is most likely dead.
const ANSWER_SOON = 4_000;

const screen = document.querySelector(".screen");
const status = new Status();
const encoder = new TextEncoder();
let canType = document.body.dataset.mode === "control";
let socket = null;
let attached = false;
let answers = false;
// By a monotonic clock, since the system's may be set back.
let heard = 0;
let asked = 0;
// When the first input was sent after the last message; 0 if there was none.
let typedAt = 0;
let patience = ANSWER;
let half = "";

// Shown for a shell into which a user has typed whose access was revoked since.
const revoked = document.querySelector("#revoked");
const renew = document.querySelector("#renew");
document.querySelector("#keep").onclick = () => dismiss();
if (renew) {
  renew.onclick = () => {
    if (canType) tell({ type: "renew" });
    dismiss();
  };
}

function dismiss() {
  revoked.hidden = true;
  terminal.focus();
}

// The text of a link may be another address, so where it leads is shown, as browsers write it.
const links = {
  activate: (_, address) => open(address, "_blank", "noopener,noreferrer"),
  hover: (_, address) => (screen.title = new URL(address).href),
  leave: () => screen.removeAttribute("title"),
};

const terminal = new Terminal({
  cursorBlink: !matchMedia("(prefers-reduced-motion: reduce)").matches,
  disableStdin: !canType,
  // Else a Mac has no way to select text while a program takes the mouse: elsewhere Shift does that.
  macOptionClickForcesSelection: true,
  // Of links that programs name (OSC 8, http and https alone). xterm.js asks in English, by a dialog that
  // browsers suppress in a portal's frame.
  linkHandler: links,
  scrollback: 10_000,
  // To highlight matches of a search, and to set the widths of characters.
  allowProposedApi: true,
  ...FIRST_LOOK,
});
const fit = new FitAddon();
terminal.loadAddon(fit);
terminal.loadAddon(new WebLinksAddon(links.activate, links));
joinWidths(terminal);
terminal.open(screen.querySelector(".terminal-screen"));
describe(terminal.textarea);
joinWayOut((element) => element === terminal.textarea);
// For tests, and for the browser's console.
globalThis.fumaroleTerminal = terminal;
const output = new Output(terminal);
const input = new Input();
// By this the hub counts what it gets from this page, over all connections.
const client = randomName();
const typed = joinKeys(terminal);
joinScroll(terminal);
const openSearch = joinSearch(terminal);
const shells = joinShells();

function send(bytes) {
  if (!canType) return;
  input.send(bytes);
  typedAt ||= performance.now();
}

/** Returns *text* without the first half of a character: Firefox types emoji in halves. */
function whole(text) {
  const all = half + text;
  half = /[\ud800-\udbff]$/.test(all) ? all.at(-1) : "";
  return half ? all.slice(0, -1) : all;
}

const tell = (message) => attached && socket.send(JSON.stringify(message));

function tellSize() {
  if (canType) tell({ type: "resize", cols: terminal.cols, rows: terminal.rows });
}

terminal.onData((text) => send(encoder.encode(whole(typed(text)))));
terminal.onBinary((text) => send(Uint8Array.from(text, (character) => character.charCodeAt(0))));
terminal.onResize(tellSize);
terminal.onTitleChange((title) => {
  document.title = title ? `${title} · ${document.body.dataset.title}` : document.body.dataset.title;
});

// In view mode the terminal has the size of the user who controls it.
const refit = () => canType && fit.fit();
new ResizeObserver(() => requestAnimationFrame(refit)).observe(screen);

/** Returns the message in a text, null if it is malformed; never throws. */
function readMessage(text) {
  try {
    const message = JSON.parse(text);
    return typeof message === "object" ? message : null;
  } catch {
    return null;
  }
}

/** Takes the size of the controlling user's terminal. */
function takeSize({ cols, rows }) {
  const fits = (count) => Number.isInteger(count) && count >= 1 && count <= MOST_CELLS;
  if (!canType && fits(cols) && fits(rows)) terminal.resize(cols, rows);
}

const handlers = {
  attached(message) {
    canType = message.mode === "control";
    terminal.options.disableStdin = !canType;
    attached = true;
    // It may be another shell; the hub sends its warning after this message.
    revoked.hidden = true;
    output.begin(message, (offset) => tell({ type: "seen", offset }));
    // Older hubs know neither offsets nor pings.
    answers = output.offset !== null;
    asked = 0;
    if (canType) {
      refit();
      tellSize();
    } else {
      takeSize(message);
    }
    status.open();
    connectedAgain();
    if (input.attach(socket, canType ? output.stream : null, message.typed)) status.note(text("terminal.not_sent"));
    terminal.focus();
  },
  resized: takeSize,
  typed: ({ offset }) => input.acknowledge(offset),
  skipped: ({ bytes }) => output.skip(bytes),
  shells: ({ shells: names }) => shells.show(names),
  revoked_input() {
    revoked.hidden = false;
  },
  exit({ code, message }) {
    const known = Number.isInteger(code);
    const heading = known ? text("terminal.exit_code", { code }) : text("terminal.exited");
    output.forget();
    link.stop(heading, known ? "" : message, canType ? text("terminal.new_shell") : null);
  },
  refused({ message }) {
    output.forget();
    link.stop(text("terminal.refused"), message, text("terminal.try_again"));
  },
};

const query = () => [output.query(), `client=${client}`, shells.query()].filter(Boolean).join("&");
const link = new Link(PROTOCOL, status, use, query);

function use(fresh) {
  socket = fresh;
  attached = false;
  fresh.addEventListener("message", ({ data }) => {
    // A socket that was given up may still deliver messages.
    if (socket !== fresh) return;
    heard = performance.now();
    typedAt = 0;
    if (attached && asked) {
      asked = 0;
      status.open();
    }
    if (typeof data !== "string") {
      output.take(new Uint8Array(data));
      return;
    }
    const message = readMessage(data);
    if (message && Object.hasOwn(handlers, message.type)) handlers[message.type](message);
  });
  fresh.addEventListener("close", () => {
    if (socket !== fresh) return;
    attached = false;
    input.detach();
  });
}

/** Sends a ping to a silent hub, and drops the connection if there is no response. */
function look() {
  if (!attached || !answers) return;
  input.interrupt();
  const now = performance.now();
  if (asked > heard) {
    if (now - asked > SLOW_ANSWER) status.silent();
    if (now - asked < patience) return;
    attached = false;
    input.detach();
    link.drop();
  } else if (now - heard > SILENT || (typedAt && now - typedAt > SILENT_INPUT)) {
    ping(ANSWER);
  }
}

function ping(within) {
  patience = within;
  asked = performance.now();
  tell({ type: "ping" });
}
setInterval(look, 1_000);
// A computer that slept has lost its connections without notice.
onReturn(() => {
  if (!attached || !answers) return;
  if (asked > heard) patience = ANSWER_SOON;
  else ping(ANSWER_SOON);
});

// Copy and paste: by buttons, and by the shortcuts of terminals, since Ctrl+C interrupts a program.

const canCopy = mayCopy && Boolean(navigator.clipboard?.writeText);
const canPaste = mayPaste && Boolean(navigator.clipboard?.readText);
const question = document.querySelector("#paste-question");

async function copy() {
  if (terminal.hasSelection()) {
    try {
      await navigator.clipboard.writeText(terminal.getSelection());
      status.note(text("terminal.copied"));
    } catch {
      status.note(text("terminal.copy_refused"));
    }
  }
  terminal.focus();
}

function pasteText(text) {
  const clean = pasteable(text);
  // With bracketed paste, the program does not run the lines one by one.
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
    status.note(text("terminal.paste_refused"));
  }
  terminal.focus();
}

terminal.attachCustomKeyEventHandler((event) => {
  // Without a connection, or in view mode, Tab moves the focus out of the terminal.
  if (event.key === "Tab" && !(attached && canType)) return false;
  const isOurs = event.ctrlKey && event.shiftKey;
  const isSearch = isOurs && event.code === "KeyF";
  const isCopy = isOurs && event.code === "KeyC" && (canCopy || !mayCopy);
  if (!isSearch && !isCopy) return true;
  if (event.type === "keydown") {
    event.preventDefault();
    if (isSearch) openSearch();
    else if (canCopy) copy();
  }
  return false;
});

const menu = document.querySelector("#menu");
document.querySelector("#find").onclick = () => {
  menu.open = false;
  openSearch();
};
addEventListener("pointerdown", ({ target }) => {
  if (!menu.contains(target)) menu.open = false;
});
menu.onkeydown = ({ key }) => {
  if (key !== "Escape") return;
  menu.open = false;
  menu.querySelector("summary").focus();
};

const copyButton = document.querySelector("#copy");
const pasteButton = document.querySelector("#paste");
copyButton.hidden = !canCopy;
terminal.onSelectionChange(() => (copyButton.disabled = !terminal.hasSelection()));
pasteButton.hidden = !canPaste;
copyButton.onclick = copy;
onPaste(screen, (text) => canType && pasteText(text));
guardCopy(screen);
pasteButton.onclick = paste;

joinLook(terminal, refit);
tellEnd();
link.run().then(() => {
  endIsOver();
  terminal.options.disableStdin = true;
  terminal.options.cursorBlink = false;
});
