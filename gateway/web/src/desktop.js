// A desktop: noVNC on a WebSocket of this page, which thus learns the close code.
import RFB from "@novnc/novnc";
import { mayCopy, mayPaste } from "./clipboard.js";
import { joinKeyboard } from "./desktop-keyboard.js";
import { Look } from "./desktop-look.js";
import { Prompt } from "./desktop-password.js";
import { connectedAgain, endIsOver, tellEnd } from "./ends.js";
import { Link, Status } from "./link.js";
import { RoundTrip } from "./round-trip.js";
import { wait } from "./state.js";
import { text } from "./texts.js";
import { describe, joinWayOut } from "./way-out.js";

/** How long a paste waits for the first picture. */
const PICTURE_MS = 2000;

class Desktop extends RFB {
  /** Resolves after the first picture. The desktop has sent its clipboard formats before that. */
  painted = new Promise((resolve) => {
    this.hasPainted = resolve;
  });

  /** noVNC 1.7 does not process data that arrived with the version until more arrives. A desktop that
   * refuses sends everything at once and nothing after it. */
  _negotiateProtocolVersion() {
    const goesOn = super._negotiateProtocolVersion();
    return goesOn ?? !this._sock.rQwait("security", 1);
  }

  /** noVNC sends no fences, and treats the response to this page's fence as an error. */
  _handleServerFenceMsg() {
    if (this._sock.rQwait("fence", 8, 1)) return false;
    const head = this._sock.rQpeekBytes(8);
    if (head[3] & 0x80) return super._handleServerFenceMsg();
    if (this._sock.rQwait("fence", 8 + head[7], 1)) return false;
    this._sock.rQskipBytes(8 + head[7]);
    roundTrip.answered();
    return true;
  }

  /** Makes the desktop respond: by a fence, else by an update of one pixel (RFC 6143, 7.5.3). */
  ask() {
    this.asksForPixel = !this._supportsFence;
    if (this.asksForPixel) RFB.messages.fbUpdateRequest(this._sock, false, 0, 0, 1, 1);
    else RFB.messages.clientFence(this._sock, FENCE_REQUEST, "");
  }

  _framebufferUpdate() {
    const whole = super._framebufferUpdate();
    if (whole) this.hasPainted();
    if (whole && this.asksForPixel) {
      this.asksForPixel = false;
      roundTrip.answered();
    }
    return whole;
  }

  sendKey(...key) {
    super.sendKey(...key);
    roundTrip.typed();
  }

  /** Requests the whole picture again. */
  showAgain() {
    RFB.messages.fbUpdateRequest(this._sock, false, 0, 0, this._fbWidth, this._fbHeight);
  }

  /** noVNC 1.7 requests a size in whole pixels but compares it with fractions, and never stops. */
  _screenSize() {
    const { w, h } = super._screenSize();
    return { w: Math.floor(w), h: Math.floor(h) };
  }

  /** A desktop may choose another size than requested. Repeating the request would not help. */
  _requestRemoteResize() {
    const { w, h } = this._screenSize();
    if (this.askedSize === `${w}x${h}`) return;
    const before = this._lastResize;
    super._requestRemoteResize();
    if (this._lastResize !== before) this.askedSize = `${w}x${h}`;
  }

  /** Allows requesting the same size again, since another client may have changed it. */
  forgetSize() {
    this.askedSize = null;
  }
}

const screen = document.querySelector(".desktop-screen");
const status = new Status();
const viewOnly = document.body.dataset.mode !== "control";
// RFC 6455, section 7.4.1: an internal error; the reason says what failed.
const CLOSE_FAILED = 1011;
const FENCE_REQUEST = 0x80000000;
let desktop = null;
let copied = "";

const prompt = new Prompt(status, () => link.hurry());
const link = new Link("binary", status, (socket) => {
  // A socket that was given up may take minutes to close.
  desktop?.disconnect();
  const rfb = new Desktop(screen, socket, { shared: true });
  desktop = rfb;
  rfb.viewOnly = viewOnly;
  rfb.background = "#101214";
  const canvas = screen.querySelector("canvas");
  canvas?.setAttribute("role", "application");
  canvas?.setAttribute("aria-label", document.body.dataset.title);
  describe(canvas);
  look.apply(rfb);
  rfb.addEventListener("connect", () => {
    prompt.accepted();
    status.open();
    connectedAgain();
    if (roundTrip.takeUnsure()) status.note(text("desktop.not_sent"));
    rfb.focusOnClick = !isTyping();
    if (!isTyping()) rfb.focus();
    roundTrip.begin(() => rfb.ask());
  });
  socket.addEventListener("message", () => roundTrip.heard());
  rfb.addEventListener("desktopname", ({ detail }) => {
    if (detail.name) document.title = `${detail.name} · ${document.body.dataset.title}`;
  });
  rfb.addEventListener("clipboard", ({ detail }) => {
    // Kept until the user copies it: a desktop must not write the clipboard by itself.
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
  // The gateway has chosen the desktop, and there is no known key to compare with.
  rfb.addEventListener("serververification", () => rfb.approveServer());
  socket.addEventListener("close", ({ code, reason }) => {
    if (desktop !== rfb) return;
    desktop = null;
    roundTrip.end();
    prompt.disconnected();
    if (code === CLOSE_FAILED && reason) {
      link.explain(text("desktop.failed"), `${reason[0].toUpperCase()}${reason.slice(1)}.`);
    }
  });
});

/** Returns a desktop's reason as one short line without control characters. */
function shortReason(reason) {
  return (reason ?? "").replace(/[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]/g, " ").trim().slice(0, 200);
}

const roundTripText = document.querySelector("#round-trip");
const roundTrip = new RoundTrip(
  (milliseconds) => {
    const known = milliseconds !== null;
    roundTripText.textContent = known ? text("desktop.round_trip", { milliseconds: Math.round(milliseconds) }) : "";
  },
  (isSilent) => (isSilent ? status.silent() : status.open()),
  () => link.drop(),
);
const look = new Look(() => desktop);
const isTyping = joinKeyboard(
  () => desktop,
  (shown, covers) => {
    look.cover(covers);
    // A touch or a click then moves the pointer only, and the field keeps the keys.
    if (desktop) desktop.focusOnClick = !shown;
  },
);

joinWayOut(
  (element) => element?.tagName === "CANVAS" || element?.id === "typed",
  // noVNC releases all keys on blur of the window; their keyup events go to the focused button.
  () => dispatchEvent(new Event("blur")),
);

const keysButton = document.querySelector("#keys");
keysButton.hidden = viewOnly;
keysButton.onclick = () => {
  desktop?.sendCtrlAltDel();
  desktop?.focus();
};

const copyButton = document.querySelector("#copy");
// noVNC ignores the desktop's clipboard in view mode.
copyButton.hidden = viewOnly || !mayCopy || !navigator.clipboard?.writeText;
copyButton.onclick = async () => {
  try {
    await navigator.clipboard.writeText(copied);
    status.note(text("desktop.copied"));
  } catch {
    status.note(text("desktop.copy_refused"));
  }
  desktop?.focus();
};

const pasteButton = document.querySelector("#paste");
pasteButton.hidden = !mayPaste || !navigator.clipboard?.readText;
pasteButton.onclick = async () => {
  try {
    const pasted = await navigator.clipboard.readText();
    // Before the first picture, noVNC would send Latin-1 only.
    await Promise.race([desktop?.painted, wait(PICTURE_MS)]);
    desktop?.clipboardPasteFrom(pasted);
  } catch {
    status.note(text("desktop.paste_refused"));
  }
  desktop?.focus();
};

const fullButton = document.querySelector("#full");
fullButton.hidden = !document.fullscreenEnabled;
fullButton.onclick = () =>
  document.fullscreenElement ? document.exitFullscreen() : document.documentElement.requestFullscreen();

tellEnd();
link.run().then(() => {
  endIsOver();
  prompt.ended();
});
