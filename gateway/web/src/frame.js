// A bar above a web app, which is in a frame of the same origin. The bar shows the time left, and
// why the session ended. It changes nothing in the app; it reads the address and title of its window.
import { fetchState, onReturn, returned, serverTime, wait } from "./state.js";
import { text } from "./texts.js";

const NOTICE_SECONDS = Number(document.body.dataset.noticeSeconds);
const LOOK_AGAIN_MS = 10_000;
const OVER = { 401: "frame.grant_ended", 403: "frame.grant_ended", 404: "frame.session_ended", 410: "frame.session_ended" };

const app = document.querySelector("iframe");
const state = document.querySelector(".state");
const words = state.querySelector("span");
const reload = document.querySelector("#reload");
const alone = document.querySelector("#alone");
let endsAt = null;
let wasAway = false;
let blocked = false;

/**
 * Returns the app's URL in the fragment of this page's address; never one of the gateway's pages.
 * The URL is absolute, since a path that begins with two slashes ("/.//example.com") names a host.
 */
function wanted() {
  const root = `${location.origin}/`;
  try {
    const { origin, pathname, search, hash } = new URL(location.hash.slice(1) || "/", root);
    const own = /^\/\.fumarole(\/|$)/.test(pathname);
    return origin === location.origin && !own ? origin + pathname + search + hash : root;
  } catch {
    return root;
  }
}

/** Returns the app's current path; null if it shows another origin, or nothing. */
function place() {
  try {
    const { origin, pathname, search, hash } = app.contentWindow.location;
    return origin === location.origin ? pathname + search + hash : null;
  } catch {
    return null;
  }
}

/** Shows the app's URL by show(), and sets the link that leaves the frame. */
function go(show) {
  const to = wanted();
  alone.href = to;
  show(to);
}

/** Copies the app's address and title to this page, for reloads and bookmarks. */
function follow() {
  const at = place();
  if (at === null) return;
  if (location.hash !== `#${at}`) history.replaceState(null, "", `#${at}`);
  alone.href = location.origin + at;
  document.title = app.contentDocument?.title || document.body.dataset.title;
}

function say(kind, what) {
  state.dataset.state = kind;
  // Screen readers announce each change, so an unchanged text is not set again.
  if (words.textContent !== what) words.textContent = what;
}

/** Shows the time left to the minute. */
function left() {
  if (endsAt === null) return say("open", "");
  const seconds = endsAt - serverTime();
  const minutes = Math.floor(seconds / 60);
  const time =
    minutes < 1
      ? text("frame.under_a_minute")
      : minutes < 60
        ? text("frame.minutes", { minutes })
        : text("frame.hours", { hours: Math.floor(minutes / 60), minutes: minutes % 60 });
  const soon = seconds < NOTICE_SECONDS;
  return say(soon ? "busy" : "open", text(soon ? "frame.soon" : "frame.left", { time }));
}

/** Shows a state from the gateway; returns whether the session, or the access to it, has ended. */
function show(now) {
  if (now.http in OVER) {
    say("ended", now.title ? `${now.title}. ${now.text}` : text(OVER[now.http]));
    reload.hidden = true;
    return true;
  }
  if (now.http === 200 && now.state === "starting") {
    wasAway = true;
    say("busy", now.title ? `${now.title}. ${now.text}` : text("frame.starting"));
  } else if (now.http === 200) {
    endsAt = now.ends_at ?? null;
    reload.hidden = !wasAway;
    if (wasAway) say("busy", text("frame.restarted"));
    else if (blocked) say("busy", text("frame.blocked"));
    else left();
  } else {
    say("busy", text(now.http === 0 ? "frame.unreachable" : "frame.unavailable"));
  }
  return false;
}

/** Resolves after a while, or when the network is back or the page becomes visible. */
function pause() {
  return new Promise((done) => {
    const aborting = new AbortController();
    const go = () => {
      aborting.abort();
      done();
    };
    const options = { signal: aborting.signal };
    onReturn(go, options);
    addEventListener("offline", go, options);
    wait(LOOK_AGAIN_MS).then(go);
  });
}

reload.onclick = () => {
  wasAway = false;
  reload.hidden = true;
  left();
  go((place) => app.contentWindow.location.replace(place));
};
app.addEventListener("load", () => {
  follow();
  // A document that refuses to be framed is replaced by the browser's error page.
  blocked = place() === null;
  alone.classList.toggle("first", blocked);
  if (blocked) say("busy", text("frame.blocked"));
  else app.contentWindow.focus();
});
addEventListener("hashchange", () => go((place) => app.contentWindow.location.replace(place)));
setInterval(follow, 1000);
go((place) => (app.src = place));

for (;;) {
  const now = await fetchState();
  if (!show(now)) await pause();
  // The user may have signed in again in another tab, and comes back to this one.
  else if (OVER[now.http] === "frame.grant_ended") await returned();
  else break;
}
