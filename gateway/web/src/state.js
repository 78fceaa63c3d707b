// The state of this host's session, as the gateway reports it, and the gateway's time.
import { language } from "./texts.js";

let ahead = 0;

/** Returns the gateway's time in unix seconds, since this computer's clock may be wrong. */
export const serverTime = () => Date.now() / 1000 + ahead;

/** Sets the gateway's time in unix seconds; ignores differences that the network delay explains. */
export function setTime(told) {
  if (told && Math.abs(told - serverTime()) > 2) ahead = told - Date.now() / 1000;
}

const takeTime = (answer) => setTime(Date.parse(answer.headers.get("date") ?? "") / 1000);

/**
 * Resolves to {code, state, message, ...} of this host's session, with the HTTP status of the
 * response as `http`, which is 0 if the gateway cannot be reached.
 */
export async function fetchState() {
  try {
    const answer = await fetch("/.fumarole/state", {
      cache: "no-store",
      credentials: "same-origin",
      headers: { Accept: "application/json" },
      signal: AbortSignal.timeout(10_000),
    });
    takeTime(answer);
    return { ...(await answer.json()), http: answer.status };
  } catch {
    return { http: 0 };
  }
}

/**
 * Resolves to {http}, the HTTP status of this page's address; a redirect counts as 302.
 */
export async function fetchPage() {
  try {
    const answer = await fetch(location.href, {
      method: "HEAD",
      cache: "no-store",
      credentials: "same-origin",
      redirect: "manual",
      signal: AbortSignal.timeout(10_000),
    });
    takeTime(answer);
    return { http: answer.type === "opaqueredirect" ? 302 : answer.status };
  } catch {
    return { http: 0 };
  }
}

/** Reloads this page. Replacing an address with a fragment by itself would send no request. */
export function again() {
  if (location.href.includes("#")) location.reload();
  else location.replace(location.href);
}

/** Calls act() when the network is back, and when the page becomes visible. */
export function onReturn(act, options) {
  addEventListener("online", act, options);
  document.addEventListener("visibilitychange", () => document.hidden || act(), options);
}

/** Resolves when the page becomes visible, or the network is back. */
export function returned() {
  return new Promise((done) => {
    const aborting = new AbortController();
    const go = () => {
      aborting.abort();
      done();
    };
    onReturn(go, { signal: aborting.signal });
  });
}

/** Reloads when the user comes back to this page, and has opened the session in another tab. */
export async function reloadOnceSignedIn() {
  do await returned();
  while ((await fetchState()).http !== 200);
  again();
}

export const wait = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));

/** Returns a duration as text: "9 s", "2 min 5 s", "3 h 20 min". */
export function duration(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
}

/** Returns the local time of day of unix seconds, with the date if that is not today. */
export function clock(seconds) {
  const then = new Date(seconds * 1000);
  const today = then.toDateString() === new Date().toDateString();
  const time = { hour: "2-digit", minute: "2-digit" };
  const whole = { ...time, year: "numeric", month: "short", day: "numeric" };
  return then.toLocaleString(language, today ? time : whole);
}
