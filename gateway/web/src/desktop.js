// A desktop: noVNC on a connection of ours, so that we know by which code it was closed.
import RFB from "@novnc/novnc";
import { mayCopy, mayPaste } from "./clipboard.js";
import { Prompt } from "./desktop-password.js";
import { Link, Status } from "./link.js";
import { text } from "./texts.js";

/** noVNC 1.7 looks at what came together with the version only when something more comes. A desktop
 * that refuses says it all at once, and nothing after it. */
class Desktop extends RFB {
  _negotiateProtocolVersion() {
    const goesOn = super._negotiateProtocolVersion();
    return goesOn ?? !this._sock.rQwait("security", 1);
  }
}

const screen = document.querySelector(".desktop-screen");
const status = new Status();
const viewOnly = document.body.dataset.mode !== "control";
// RFC 6455, section 7.4.1: the gateway could not go on, and says why.
const CLOSE_FAILED = 1011;
let desktop = null;
let scaled = true;
let copied = "";

const prompt = new Prompt(status, () => link.hurry());
const link = new Link("binary", status, (socket) => {
  const rfb = new Desktop(screen, socket, { shared: true });
  desktop = rfb;
  rfb.viewOnly = viewOnly;
  rfb.background = "#101214";
  applyScale();
  rfb.addEventListener("connect", () => {
    prompt.accepted();
    status.open();
    rfb.focus();
  });
  rfb.addEventListener("desktopname", ({ detail }) => {
    if (detail.name) document.title = `${detail.name} · ${document.body.dataset.title}`;
  });
  rfb.addEventListener("clipboard", ({ detail }) => {
    // Kept until the user asks for it: a desktop must not decide what is pasted elsewhere.
    if (!mayCopy) return;
    copied = detail.text;
    copyButton.disabled = !copied;
  });
  rfb.addEventListener("securityfailure", ({ detail }) => {
    const reason = shortReason(detail.reason);
    if (prompt.refused(reason)) link.again();
    else link.explain(text("desktop.refused"), reason || text("desktop.no_reason"));
  });
  rfb.addEventListener("credentialsrequired", ({ detail }) => {
    prompt.ask(detail.types, (credentials) => rfb.sendCredentials(credentials));
  });
  // Which desktop this is, the gateway has decided: there is nothing to compare its key with.
  rfb.addEventListener("serververification", () => rfb.approveServer());
  socket.addEventListener("close", ({ code, reason }) => {
    if (desktop === rfb) desktop = null;
    prompt.disconnected();
    if (code === CLOSE_FAILED && reason) {
      link.explain(text("desktop.failed"), `${reason[0].toUpperCase()}${reason.slice(1)}.`);
    }
  });
});

/** Return what a desktop says of itself, as one short line: it can say anything. */
function shortReason(reason) {
  return (reason ?? "").replace(/[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]/g, " ").trim().slice(0, 200);
}

function applyScale() {
  if (!desktop) return;
  desktop.scaleViewport = scaled;
  desktop.clipViewport = !scaled;
  desktop.dragViewport = !scaled;
}

const scaleButton = document.querySelector("#scale");
scaleButton.onclick = () => {
  scaled = !scaled;
  scaleButton.setAttribute("aria-pressed", String(scaled));
  applyScale();
  desktop?.focus();
};

// A desktop takes every key, Tab too. Ctrl+Alt+Shift is the way out of it to the bar.
addEventListener(
  "keydown",
  (event) => {
    if (!event.ctrlKey || !event.altKey || !event.shiftKey || document.activeElement?.tagName !== "CANVAS") return;
    scaleButton.focus();
    // noVNC lets go of all keys when the window does: their release is heard by the button.
    dispatchEvent(new Event("blur"));
  },
  { capture: true },
);

const keysButton = document.querySelector("#keys");
keysButton.hidden = viewOnly;
keysButton.onclick = () => {
  desktop?.sendCtrlAltDel();
  desktop?.focus();
};

const copyButton = document.querySelector("#copy");
copyButton.hidden = !mayCopy || !navigator.clipboard?.writeText;
copyButton.onclick = async () => {
  try {
    await navigator.clipboard.writeText(copied);
    status.open(text("desktop.copied"));
  } catch {
    status.open(text("desktop.copy_refused"));
  }
  desktop?.focus();
};

const pasteButton = document.querySelector("#paste");
pasteButton.hidden = !mayPaste || !navigator.clipboard?.readText;
pasteButton.onclick = async () => {
  try {
    desktop?.clipboardPasteFrom(await navigator.clipboard.readText());
  } catch {
    status.open(text("desktop.paste_refused"));
  }
  desktop?.focus();
};

const fullButton = document.querySelector("#full");
fullButton.hidden = !document.fullscreenEnabled;
fullButton.onclick = () =>
  document.fullscreenElement ? document.exitFullscreen() : document.documentElement.requestFullscreen();

link.run().then(() => prompt.ended());
