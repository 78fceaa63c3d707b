// Shows in the bar, some minutes before, when the session or the access to it ends.
import { clock, fetchState, serverTime, setTime, wait } from "./state.js";
import { text } from "./texts.js";

const LOOK_AGAIN_MS = 60_000;
const OVER = [401, 403, 404, 410];
const WORDS = { session: "ends.session", access: "ends.access" };

// In view mode there is nothing to save.
const ADVICE = document.body.dataset.mode === "control" ? ` ${text("ends.save")}` : "";

const line = document.querySelector("#ends");
const more = document.querySelector("#ends-more");
let over = false;
let hurry = () => {};

/** Shows the end once, for screen readers; only the minutes beside it change. */
function show(end) {
  const words = end ? text(WORDS[end.of], { time: clock(end.at) }) + ADVICE : "";
  if (line.textContent !== words) line.textContent = words;
  more.hidden = !end;
  if (!end) return;
  const minutes = Math.floor((end.at - serverTime()) / 60);
  more.firstChild.textContent = minutes < 1 ? text("ends.under_a_minute") : text("ends.left", { minutes });
  for (const way of more.querySelectorAll("[data-of]")) way.hidden = way.dataset.of !== end.of;
}

/** Resolves after a while, and when the page becomes visible: the user may have extended the job. */
function pause(milliseconds) {
  return new Promise((done) => {
    const seen = () => {
      if (document.hidden) return;
      document.removeEventListener("visibilitychange", seen);
      done();
    };
    document.addEventListener("visibilitychange", seen);
    hurry = seen;
    wait(milliseconds).then(seen);
  });
}

/**
 * Shows the end notice until endIsOver(). Polls the gateway for the current end: when the notice is
 * due, each minute after that, and when the page becomes visible.
 */
export async function tellEnd() {
  let end = JSON.parse(document.body.dataset.end ?? "null");
  if (end) setTime(end.now);
  while (end) {
    // In pieces, since a timer stops while the computer sleeps.
    while (serverTime() < end.told_from) {
      await pause(Math.min((end.told_from - serverTime()) * 1000, LOOK_AGAIN_MS));
    }
    const now = await fetchState();
    if (over || OVER.includes(now.http)) break;
    if (now.http === 200) end = now.end ?? null;
    const near = end && serverTime() >= end.told_from;
    show(near ? end : null);
    if (near) await pause(LOOK_AGAIN_MS);
    if (over) break;
  }
  show(null);
}

/** Polls at once after a reconnect: the new access may end later. */
export function connectedAgain() {
  hurry();
}

/** Removes the notice: the session has ended, which is shown elsewhere. */
export function endIsOver() {
  over = true;
  show(null);
}
