// What the gateway says of this host's session right now.
import { language } from "./texts.js";

let ahead = 0;

/** The gateway's time, in seconds: this computer's clock may be wrong. */
export const serverTime = () => Date.now() / 1000 + ahead;

/** Takes the gateway's time, in seconds. It is late by the way here: small differences are no news. */
export function setTime(told) {
  if (told && Math.abs(told - serverTime()) > 2) ahead = told - Date.now() / 1000;
}

const takeTime = (answer) => setTime(Date.parse(answer.headers.get("date") ?? "") / 1000);

/**
 * Resolves to {code, state, message, ...} of this host's session, with the answer's HTTP status as
 * `http`; 0 when the gateway cannot be reached.
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
 * Resolves to {http}, the status of this very page; a redirect counts as 302.
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

/** Asks for this page again. To replace an address by itself, fragment and all, asks for nothing. */
export function again() {
  if (location.href.includes("#")) location.reload();
  else location.replace(location.href);
}

/** Calls act() when the network is back, and when somebody comes back to the page. */
export function onReturn(act, options) {
  addEventListener("online", act, options);
  document.addEventListener("visibilitychange", () => document.hidden || act(), options);
}

export const wait = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));

/** Says how long something took, or since when: "9 s", "2 min 5 s", "3 h 20 min". */
export function duration(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
}

/** The time of day of a moment in unix seconds, with the date where that is another day. */
export function clock(seconds) {
  const then = new Date(seconds * 1000);
  const today = then.toDateString() === new Date().toDateString();
  const time = { hour: "2-digit", minute: "2-digit" };
  const whole = { ...time, year: "numeric", month: "short", day: "numeric" };
  return then.toLocaleString(language, today ? time : whole);
}
