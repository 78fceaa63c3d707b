// Takes the token out of the address and its history, and posts it as a form, so that the
// server's answer (a redirect with the cookie, or a page that says what is wrong) is a page.

const parameters = new URLSearchParams(location.hash.slice(1));
const token = parameters.get("token");
history.replaceState(null, "", location.pathname);

if (token) {
  const form = document.createElement("form");
  form.method = "post";
  form.action = location.pathname;
  for (const [name, value] of [["token", token], ["next", parameters.get("next") ?? "/"]]) {
    const field = document.createElement("input");
    field.type = "hidden";
    field.name = name;
    field.value = value;
    form.append(field);
  }
  document.body.append(form);
  form.submit();
} else {
  document.querySelector("h1").textContent = "This link is incomplete";
  document.querySelector("#status").textContent =
    "The part that lets you in is missing from it. It may have been cut off when it was copied, " +
    "or it was used in this tab already.";
  document.querySelector("#what-next").hidden = false;
  document.querySelector(".bar-of-progress").hidden = true;
}
