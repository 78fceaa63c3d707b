// Shows in local time when the session ends, and reloads into the app, or into a refusal.
import { again, clock, fetchState, serverTime, wait } from "./state.js";
import { text } from "./texts.js";

const LOOK_AGAIN_MS = 15_000;

const status = document.querySelector("#status");
const endsAt = Number(document.body.dataset.endsAt);

// The link's own address has no fragment.
document.querySelector(".actions .first").onclick = (event) => {
  event.preventDefault();
  again();
};

/** Shows the time left to the minute, so that screen readers announce it once a minute. */
function show() {
  const minutes = Math.floor((endsAt - serverTime()) / 60);
  const values = { time: clock(endsAt), minutes };
  const words = minutes < 1 ? text("soon.under_a_minute", values) : text("soon.left", values);
  if (status.textContent !== words) status.textContent = words;
}

for (;;) {
  const now = await fetchState();
  if (now.http && now.http !== 200) break;
  show();
  await wait(LOOK_AGAIN_MS);
}
again();
