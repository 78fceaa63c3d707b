// Asks for a desktop's own password, which is kept nowhere: not in storage, not in the form, and in
// memory only until the desktop has said yes or no.

import { text } from "./texts.js";

const form = document.querySelector("#password-form");
const problem = document.querySelector("#password-problem");
const username = document.querySelector("#username");
const password = document.querySelector("#password");

export class Prompt {
  /** hurry() is called when something was entered while there was no connection. */
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
    // Browsers may keep a page that was left, and bring it back as it was.
    addEventListener("pagehide", () => this.clear());
  }

  /** Ask for what the desktop wants to know; send(credentials) tells it. */
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
    // noVNC gets this very object and keeps no other: what is deleted from it is gone there too.
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

  /** The desktop said no. Return whether that was to what was entered here. */
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

  /** The connection is gone. A prompt stays for the next one, with what is being typed. */
  disconnected() {
    this.send = null;
    if (form.hidden) this.wipe();
  }

  /** There will be no other connection. */
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
