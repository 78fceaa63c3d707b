// Says in the bar, some minutes before, when the session or the access to it ends.
import { clock, fetchState, serverTime, setTime, wait } from "./state.js";
import { text } from "./texts.js";

const LOOK_AGAIN_MS = 60_000;
const OVER = [401, 403, 404, 410];
const WORDS = { session: "ends.session", access: "ends.access" };

// Who only looks on has nothing to save.
const ADVICE = document.body.dataset.mode === "control" ? ` ${text("ends.save")}` : "";

const line = document.querySelector("#ends");
const more = document.querySelector("#ends-more");
let over = false;
let hurry = () => {};

/** Says that it ends, once: only what is beside that goes on counting. */
function show(end) {
  const words = end ? text(WORDS[end.of], { time: clock(end.at) }) + ADVICE : "";
  if (line.textContent !== words) line.textContent = words;
  more.hidden = !end;
  if (!end) return;
  const minutes = Math.floor((end.at - serverTime()) / 60);
  more.firstChild.textContent = minutes < 1 ? text("ends.under_a_minute") : text("ends.left", { minutes });
  for (const way of more.querySelectorAll("[data-of]")) way.hidden = way.dataset.of !== end.of;
}

/** Resolves after a while, and when somebody looks here again: they may have come back from extending it. */
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
 * Tells of the end, until endIsOver(). The gateway is asked whether it still ends then: once that is
 * to be told, and after that each minute while somebody sees it, and when somebody looks here again.
 */
export async function tellEnd() {
  let end = JSON.parse(document.body.dataset.end ?? "null");
  if (end) setTime(end.now);
  while (end) {
    // In pieces: a timer does not count while its computer sleeps.
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

/** There is another connection: perhaps by another access, which ends later. */
export function connectedAgain() {
  hurry();
}

/** The end has come, and is told elsewhere. */
export function endIsOver() {
  over = true;
  show(null);
}
