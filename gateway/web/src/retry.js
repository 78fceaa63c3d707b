// Tries again when the server said that it is worth it, and longer each time.

const KEY = "fumarole-retries";
const tries = Number(sessionStorage.getItem(KEY) ?? 0);
const status = document.querySelector("#status");
let left = Math.min(Number(document.body.dataset.retrySeconds) * 2 ** Math.min(tries, 4), 30);

const tick = () => {
  if (left <= 0) {
    sessionStorage.setItem(KEY, String(tries + 1));
    location.replace(location.href);
    return;
  }
  status.textContent = `Trying again in ${left} s.`;
  left -= 1;
  setTimeout(tick, 1000);
};

// A page that is shown again long after is a new matter.
addEventListener("pagehide", () => {
  if (left > 0) sessionStorage.removeItem(KEY);
});
tick();
