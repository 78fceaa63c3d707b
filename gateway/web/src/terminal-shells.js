// The shell that this page shows, and the list of the session's other shells.
import { text } from "./texts.js";

const MOST = 64;
const NAME = /^[0-9a-z]{1,32}$/;

export function randomName() {
  const random = crypto.getRandomValues(new Uint8Array(8));
  return Array.from(random, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Returns the shell that the address names; ?new becomes a new random name. */
function nameOf(address) {
  if (address.searchParams.has("new")) {
    const name = randomName();
    history.replaceState(null, "", `${address.pathname}?shell=${name}`);
    return name;
  }
  const name = address.searchParams.get("shell") ?? "";
  return NAME.test(name) ? name : "";
}

/** Returns query(), the query that names the shell, and show(names), which lists all shells. */
export function joinShells() {
  const name = nameOf(new URL(location.href));
  const choice = document.querySelector("#shells");
  choice.onchange = () => location.assign(choice.value ? `/?shell=${choice.value}` : "/");
  return {
    query: () => (name ? `shell=${name}` : ""),
    show(names) {
      if (!Array.isArray(names)) return;
      const known = names.slice(0, MOST).filter((one) => one === "" || NAME.test(one));
      if (!known.includes(name)) known.push(name);
      const label = (index) => text("terminal.shell", { number: index + 1 });
      const options = known.map((one, index) => new Option(label(index), one, false, one === name));
      choice.replaceChildren(...options);
      choice.hidden = known.length < 2;
    },
  };
}
