// Takes the token out of the address and its history, and posts it as a form, so that the
// server's answer (a redirect with the cookie, or a page that says what is wrong) is a page.

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
  document.querySelector("h1").textContent = "This link is incomplete";
  document.querySelector("#status").textContent =
    "The part that lets you in is missing from it. It may have been cut off when it was copied, " +
    "or it was used in this tab already.";
  document.querySelector("#what-next").hidden = false;
  document.querySelector(".bar-of-progress").hidden = true;
}

// A whole link that is put into the address bar of this very page changes the fragment alone.
addEventListener("hashchange", open);
open();
