// Takes the token out of the address and its history, and posts it as a form, so that the
// server's answer (a redirect with the cookie, or a page that says what is wrong) is a page.
import { text } from "./texts.js";

function open() {
  const parameters = new URLSearchParams(location.hash.slice(1));
  const token = parameters.get("token");
  history.replaceState(null, "", location.pathname);
  if (token) {
    post({ token, next: parameters.get("next") ?? "/" });
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
  // Kept nowhere, also when the browser comes back to this page.
  form.remove();
}

function explain() {
  document.querySelector("h1").textContent = text("open.incomplete");
  document.querySelector("#status").textContent = text("open.incomplete_text");
  document.querySelector("#what-next").hidden = false;
  document.querySelector(".bar-of-progress").hidden = true;
}

// A whole link that is put into the address bar of this very page changes the fragment alone.
addEventListener("hashchange", open);
open();
