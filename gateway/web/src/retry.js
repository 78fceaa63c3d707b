// Tries again when the server said that it is worth it, and longer each time.

import { again, clock } from "./state.js";
import { text } from "./texts.js";

const KEY = "fumarole-retries";
const SINCE = "fumarole-silent-since";
const SILENT_SECONDS = 30;
const tries = Number(sessionStorage.getItem(KEY) ?? 0);
const status = document.querySelector("#status");
const { port } = document.body.dataset;
// Of the first of these pages in a row: a later one does not know of those before.
const since = tries ? Number(sessionStorage.getItem(SINCE) ?? Date.now()) : Date.now();
sessionStorage.setItem(SINCE, String(since));
if (port && Date.now() - since > SILENT_SECONDS * 1000) {
  const stuck = document.querySelector("#stuck");
  stuck.textContent = text("retry.silent", { port, time: clock(since / 1000) });
  stuck.hidden = false;
}
let left = Math.min(Number(document.body.dataset.retrySeconds) * 2 ** Math.min(tries, 4), 30);

const tick = () => {
  if (left <= 0) {
    sessionStorage.setItem(KEY, String(tries + 1));
    again();
    return;
  }
  status.textContent = text("retry.again", { seconds: left });
  left -= 1;
  setTimeout(tick, 1000);
};

// A page that is shown again long after is a new matter.
addEventListener("pagehide", () => {
  if (left > 0) {
    sessionStorage.removeItem(KEY);
    sessionStorage.removeItem(SINCE);
  }
});
tick();
