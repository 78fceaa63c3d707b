// Follows the session's state and enters by itself. Whatever else it turns into, the server has
// a page for it.
import { fetchPage, fetchState, wait } from "./state.js";

const status = document.querySelector("#status");
const since = Date.now();

for (;;) {
  await wait(Date.now() - since < 60_000 ? 1000 : 3000);
  let now = await fetchState();
  // Under a public link nothing tells the state: only the page itself does.
  if (now.status === 404) now = await fetchPage();
  if (now.status === 0) {
    status.textContent = "The gateway cannot be reached. Still trying.";
  } else if (now.status === 200 && now.state === "starting") {
    const text = now.message || "It takes as long as its job needs to start.";
    if (status.textContent !== text) status.textContent = text;
  } else if (now.status !== 503) {
    location.replace(location.href);
    break;
  }
}
