// Prompts for a desktop's own password. It is not kept in storage or in the form, and in memory only
// until the desktop has accepted or refused it.

import { text } from "./texts.js";

const form = document.querySelector("#password-form");
const problem = document.querySelector("#password-problem");
const username = document.querySelector("#username");
const password = document.querySelector("#password");

export class Prompt {
  /** Calls hurry() when the user submits the form while there is no connection. */
  constructor(status, hurry) {
    this.status = status;
    this.hurry = hurry;
    this.send = null;
    this.entered = null;
    this.told = false;
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.submit();
    });
    // Browsers may keep a page that the user has left, and show it again as it was.
    addEventListener("pagehide", () => this.clear());
  }

  /** Prompts for the credentials that the desktop requires; send(credentials) sends them. */
  ask(types, send) {
    this.send = send;
    if (this.entered) {
      this.tell();
      return;
    }
    this.status.prompt(text("desktop.waiting_password"));
    if (!form.hidden) return;
    const named = types.includes("username");
    username.parentElement.hidden = !named;
    username.required = named;
    form.hidden = false;
    (named && !username.value ? username : password).focus();
  }

  submit() {
    // noVNC keeps no copy of this object, so clearing its fields removes the password there, too.
    this.entered = { username: username.value, password: password.value, target: "" };
    password.value = "";
    form.hidden = true;
    this.status.connecting();
    if (this.send) this.tell();
    else this.hurry();
  }

  tell() {
    this.told = true;
    this.send(this.entered);
  }

  /** Handles a refusal; returns whether the desktop refused what the user has entered. */
  refused(reason) {
    const wasEntered = this.told;
    this.wipe();
    if (!wasEntered) return false;
    problem.textContent = text(reason ? "desktop.wrong_password_reason" : "desktop.wrong_password", { reason });
    problem.hidden = false;
    return true;
  }

  accepted() {
    this.clear();
    problem.hidden = true;
    username.value = "";
    form.hidden = true;
    this.status.promptDone();
  }

  /** Handles a lost connection. An open prompt stays for the next one, with its text. */
  disconnected() {
    this.send = null;
    if (form.hidden) this.wipe();
  }

  /** Handles the final end of the session. */
  ended() {
    this.accepted();
  }

  clear() {
    this.wipe();
    password.value = "";
  }

  wipe() {
    if (this.entered) this.entered.username = this.entered.password = undefined;
    this.entered = null;
    this.told = false;
  }
}
