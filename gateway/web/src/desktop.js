// A desktop: noVNC on a connection of ours, so that we know by which code it was closed.
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

/** For a desktop's first picture; one that is slower gets what is pasted all the same. */
const PICTURE_MS = 2000;

class Desktop extends RFB {
  /** Kept once a picture has come: what its clipboard takes, the desktop has said before that. */
  painted = new Promise((resolve) => {
    this.hasPainted = resolve;
  });

  /** noVNC 1.7 looks at what came together with the version only when something more comes. A desktop
   * that refuses says it all at once, and nothing after it. */
  _negotiateProtocolVersion() {
    const goesOn = super._negotiateProtocolVersion();
    return goesOn ?? !this._sock.rQwait("security", 1);
  }

  /** noVNC asks for no fence, and takes the answer to ours for a mistake. */
  _handleServerFenceMsg() {
    if (this._sock.rQwait("fence", 8, 1)) return false;
    const head = this._sock.rQpeekBytes(8);
    if (head[3] & 0x80) return super._handleServerFenceMsg();
    if (this._sock.rQwait("fence", 8 + head[7], 1)) return false;
    this._sock.rQskipBytes(8 + head[7]);
    roundTrip.answered();
    return true;
  }

  /** Has the desktop say something: by a fence, else by a pixel, which it must send (RFC 6143, 7.5.3). */
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

  /** Has all of the picture sent again. */
  showAgain() {
    RFB.messages.fbUpdateRequest(this._sock, false, 0, 0, this._fbWidth, this._fbHeight);
  }

  /** noVNC 1.7 asks for whole pixels, and then compares with parts of them: it would ask for ever. */
  _screenSize() {
    const { w, h } = super._screenSize();
    return { w: Math.floor(w), h: Math.floor(h) };
  }

  /** A desktop may take another size than it was asked for. Asked again, it would do the same. */
  _requestRemoteResize() {
    const { w, h } = this._screenSize();
    if (this.askedSize === `${w}x${h}`) return;
    const before = this._lastResize;
    super._requestRemoteResize();
    if (this._lastResize !== before) this.askedSize = `${w}x${h}`;
  }

  /** Ask for the window's size even where that was done before: somebody else may have changed it. */
  forgetSize() {
    this.askedSize = null;
  }
}

const screen = document.querySelector(".desktop-screen");
const status = new Status();
const viewOnly = document.body.dataset.mode !== "control";
// RFC 6455, section 7.4.1: the gateway could not go on, and says why.
const CLOSE_FAILED = 1011;
const FENCE_REQUEST = 0x80000000;
let desktop = null;
let copied = "";

const prompt = new Prompt(status, () => link.hurry());
const link = new Link("binary", status, (socket) => {
  // One that was given up may take minutes to close.
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
    rfb.focusOnClick = !isTyping();
    if (!isTyping()) rfb.focus();
    roundTrip.begin(() => rfb.ask());
  });
  socket.addEventListener("message", () => roundTrip.heard());
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
    if (desktop !== rfb) return;
    desktop = null;
    roundTrip.end();
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

const roundTripText = document.querySelector("#round-trip");
const roundTrip = new RoundTrip(
  (milliseconds) => {
    const known = milliseconds !== null;
    roundTripText.textContent = known ? text("desktop.round_trip", { milliseconds: Math.round(milliseconds) }) : "";
  },
  () => link.drop(),
);
const look = new Look(() => desktop);
const isTyping = joinKeyboard(
  () => desktop,
  (shown) => {
    look.cover(shown);
    // A touch moves the pointer then, and the keyboard stays.
    if (desktop) desktop.focusOnClick = !shown;
  },
);

joinWayOut(
  (element) => element?.tagName === "CANVAS",
  // noVNC lets go of all keys when the window does: their release is heard by the button.
  () => dispatchEvent(new Event("blur")),
);

const keysButton = document.querySelector("#keys");
keysButton.hidden = viewOnly;
keysButton.onclick = () => {
  desktop?.sendCtrlAltDel();
  desktop?.focus();
};

const copyButton = document.querySelector("#copy");
// noVNC takes no text from a desktop that is only looked at.
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
    // Before it, noVNC would send Latin-1 alone.
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
