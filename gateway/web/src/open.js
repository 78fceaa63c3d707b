// Removes the token from the address and the history, and posts it as a form, so that the browser
// shows the response as a page: a redirect with the cookie, or a refusal.
import { text } from "./texts.js";

function open() {
  const parameters = new URLSearchParams(location.hash.slice(1));
  const token = parameters.get("token");
  history.replaceState(null, "", location.pathname);
  if (token) {
    const fields = { token, next: parameters.get("next") ?? "/" };
    const { frame } = document.body.dataset;
    if (frame) {
      fields.frame = frame; // how the framing page is related, which the post itself does not say
    }
    post(fields);
  } else {
    explain();
  }
}

function post(fields) {
  const form = document.createElement("form");
  form.method = "post";
  form.action = location.pathname;
  for (const [name, value] of Object.entries(fields)) {
    const field = document.createElement("input");
    field.type = "hidden";
    field.name = name;
    field.value = value;
    form.append(field);
  }
  document.body.append(form);
  form.submit();
  // So that the token is not in the page when the browser comes back to it.
  form.remove();
}

function explain() {
  document.querySelector("h1").textContent = text("open.incomplete");
  document.querySelector("#status").textContent = text("open.incomplete_text");
  document.querySelector("#what-next").hidden = false;
  // Only for a user who is signed in.
  document.querySelector("#way-in")?.removeAttribute("hidden");
  document.querySelector(".bar-of-progress").hidden = true;
}

// A link that is pasted into the address bar of this page changes only the fragment.
addEventListener("hashchange", open);
open();
