// Polls the state of a starting session, and reloads once it is anything else: the server then
// responds with the app or with a refusal's page.
import { again, clock, duration, fetchPage, fetchState, serverTime, wait } from "./state.js";
import { text } from "./texts.js";

const STUCK_SECONDS = 60;
const STEPS = new Set(["queued", "suspended", "preparing", "starting"]);

const heading = document.querySelector("h1");
const status = document.querySelector("#status");
const steps = document.querySelector("#steps");
const stuck = document.querySelector("#stuck");
const since = Date.now();
let shown = read(document.body.dataset.status);

function read(status) {
  try {
    return JSON.parse(status ?? "null");
  } catch {
    return null;
  }
}

/** Sets a text only if it has changed, since screen readers announce each change. */
function say(element, words) {
  if (element.textContent !== words) element.textContent = words;
}

/** Shows the phases so far, each with its duration; the last one is current. */
function show() {
  if (!shown) return;
  const now = serverTime();
  const begun = [...(shown.times ?? [])];
  begun.push([shown.phase, shown.since ?? null]);
  const known = begun.filter(([phase]) => STEPS.has(phase));
  while (steps.children.length > known.length) steps.lastChild.remove();
  known.forEach(([phase, at], index) => {
    const end = known[index + 1] ? known[index + 1][1] : now;
    const item = steps.children[index] ?? steps.appendChild(makeStep());
    say(item.firstChild, text(`starting.${phase}`));
    say(item.lastChild, at === null || end === null ? "" : duration(end - at));
    if (index === known.length - 1) item.setAttribute("aria-current", "step");
    else item.removeAttribute("aria-current");
  });
  steps.hidden = !known.length;
  const silent = shown.phase === "starting" && shown.port && shown.since && now - shown.since > STUCK_SECONDS;
  stuck.hidden = !silent;
  if (silent) {
    say(stuck, text("starting.silent", { port: shown.port, time: clock(shown.since) }));
  }
}

function makeStep() {
  const item = document.createElement("li");
  item.append(document.createElement("span"), document.createElement("span"));
  return item;
}

setInterval(show, 1000);
show();
for (;;) {
  await wait(Date.now() - since < 60_000 ? 1000 : 3000);
  let now = await fetchState();
  // A public host serves no state, only the page itself.
  if (now.http === 404) now = await fetchPage();
  if (now.http === 0) {
    say(status, text("starting.unreachable"));
  } else if (now.http === 200 && now.state === "starting") {
    if (now.title) say(heading, now.title);
    // The tab shows the state to a user who looks at another tab.
    document.title = heading.textContent;
    say(status, now.text || now.message || text("starting.patience"));
    shown = now.status ?? shown;
    show();
  } else if (now.http !== 503) {
    again();
    break;
  }
}
