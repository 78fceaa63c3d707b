// Removes the token from the address and the history, and posts it as a form, so that the browser
// shows the response as a page: a redirect with the cookie, or a refusal.
import { text } from "./texts.js";

const status = document.querySelector("#status");

// A form that was sent is on its way for this long, even over a slow network.
const STUCK = 15_000;

function open() {
  // No cookie is kept for a document without an origin, so the token would be spent for nothing.
  if (window.origin === "null") {
    say(text("open.sandboxed"), text("open.sandboxed_text"));
    return;
  }
  const parameters = new URLSearchParams(location.hash.slice(1));
  const token = parameters.get("token");
  history.replaceState(null, "", location.pathname);
  if (token) {
    const fields = { token, next: parameters.get("next") ?? "/" };
    if (window.top !== window && keepsSameSiteCookies()) fields.frame = "same-site";
    post(fields);
  } else {
    explain();
  }
}

/**
 * Returns whether this frame and all pages around it are of one site. Browsers drop this cookie if
 * any of these pages is of another site. Request headers name only the page that loads this frame.
 */
function keepsSameSiteCookies() {
  const probe = "fumarole-frame=1";
  const where = "; Path=/.fumarole/; SameSite=Strict";
  try {
    document.cookie = probe + where;
    const kept = document.cookie.split("; ").includes(probe);
    if (kept) document.cookie = `${probe + where}; Max-Age=0`;
    return kept;
  } catch {
    return false; // a sandboxed frame has no cookies at all
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
  // A sandboxed frame that allows no forms reports this to nobody but the console.
  if (window.top !== window) setTimeout(() => (status.textContent = text("open.stuck")), STUCK);
}

function explain() {
  say(text("open.incomplete"), text("open.incomplete_text"));
  document.querySelector("#what-next").hidden = false;
  document.querySelector("#ways-on")?.removeAttribute("hidden");
}

function say(heading, words) {
  document.title = document.querySelector("h1").textContent = heading;
  status.textContent = words;
  document.querySelector(".bar-of-progress").hidden = true;
}

// A link that is pasted into the address bar of this page changes only the fragment.
addEventListener("hashchange", open);
open();
