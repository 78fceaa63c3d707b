// Reloads a refusal's page after the time that the server gave, with growing pauses.

import { again, clock } from "./state.js";
import { text } from "./texts.js";

const KEY = "fumarole-retries";
const SINCE = "fumarole-silent-since";
const AT = "fumarole-retried-at";
const SILENT_SECONDS = 30;
// A retry that was answered later than this was answered by the app: this is another failure.
const ANSWERED_SECONDS = 60;
const isRetry = Date.now() - Number(sessionStorage.getItem(AT) ?? 0) < ANSWERED_SECONDS * 1000;
const tries = isRetry ? Number(sessionStorage.getItem(KEY) ?? 0) : 0;
const status = document.querySelector("#status");
const { port } = document.body.dataset;
// When the first of these pages in a row was loaded, kept over reloads.
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
    sessionStorage.setItem(AT, String(Date.now()));
    again();
    return;
  }
  status.textContent = text("retry.again", { seconds: left });
  left -= 1;
  setTimeout(tick, 1000);
};

// A page that is left counts as a new attempt when it is shown again.
addEventListener("pagehide", () => {
  if (left > 0) {
    sessionStorage.removeItem(KEY);
    sessionStorage.removeItem(SINCE);
  }
});
tick();
