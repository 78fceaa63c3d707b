// Follows the session's state and enters by itself. Whatever else it turns into, the server has
// a page for it.
import { fetchState, wait } from "./state.js";

const status = document.querySelector("#status");
const since = Date.now();

for (;;) {
  await wait(Date.now() - since < 60_000 ? 1000 : 3000);
  const now = await fetchState();
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
