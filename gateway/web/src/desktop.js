// A desktop: noVNC on a connection of ours, so that we know by which code it was closed.
import RFB from "@novnc/novnc";
import { mayCopy, mayPaste } from "./clipboard.js";
import { Link, Status } from "./link.js";

const screen = document.querySelector(".desktop-screen");
const status = new Status();
const viewOnly = document.body.dataset.mode !== "control";
const passwordForm = document.querySelector("#password-form");
const password = document.querySelector("#password");
let desktop = null;
let scaled = true;
let copied = "";

const link = new Link("binary", status, (socket) => {
  const rfb = new RFB(screen, socket, { shared: true });
  desktop = rfb;
  rfb.viewOnly = viewOnly;
  rfb.background = "#101214";
  applyScale();
  rfb.addEventListener("connect", () => {
    passwordForm.hidden = true;
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
    status.busy(`The desktop refused: ${detail.reason || "no reason was given"}`);
  });
  rfb.addEventListener("credentialsrequired", () => {
    passwordForm.hidden = false;
    password.value = "";
    password.focus();
  });
  socket.addEventListener("close", () => {
    passwordForm.hidden = true;
  });
});

passwordForm.addEventListener("submit", (event) => {
  event.preventDefault();
  passwordForm.hidden = true;
  desktop.sendCredentials({ password: password.value });
  password.value = "";
});

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
    status.open("Copied");
  } catch {
    status.open("The browser did not allow to write the clipboard");
  }
  desktop?.focus();
};

const pasteButton = document.querySelector("#paste");
pasteButton.hidden = !mayPaste || !navigator.clipboard?.readText;
pasteButton.onclick = async () => {
  try {
    desktop?.clipboardPasteFrom(await navigator.clipboard.readText());
  } catch {
    status.open("The browser did not allow to read the clipboard");
  }
  desktop?.focus();
};

const fullButton = document.querySelector("#full");
fullButton.hidden = !document.fullscreenEnabled;
fullButton.onclick = () =>
  document.fullscreenElement ? document.exitFullscreen() : document.documentElement.requestFullscreen();

link.run();
