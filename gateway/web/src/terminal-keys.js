// A row of keys that touch keyboards lack.

const ARROWS = { up: "A", down: "B", right: "C", left: "D" };
const PLAIN = { escape: "\x1b", tab: "\t" };

/** Returns the control character of Ctrl and a character; other characters are unchanged. */
function control(character) {
  if (character === "?") return "\x7f";
  const code = character === " " ? 64 : character.toUpperCase().charCodeAt(0);
  return code >= 64 && code < 96 ? String.fromCharCode(code & 31) : character;
}

/** Connects the row to a terminal; returns a function that applies Ctrl to typed text. */
export function joinKeys(terminal) {
  const row = document.querySelector("#key-row");
  if (!row) return (text) => text;
  const ctrl = row.querySelector('[data-key="ctrl"]');
  const isArmed = () => ctrl.getAttribute("aria-pressed") === "true";
  const arm = (armed) => ctrl.setAttribute("aria-pressed", armed);

  function press(key) {
    if (key === "ctrl") {
      arm(!isArmed());
      return;
    }
    const armed = isArmed();
    arm(false);
    const arrow = ARROWS[key];
    if (!arrow) terminal.input(PLAIN[key]);
    else if (armed) terminal.input(`\x1b[1;5${arrow}`);
    else terminal.input(`\x1b${terminal.modes.applicationCursorKeysMode ? "O" : "["}${arrow}`);
  }

  row.onclick = (event) => {
    const key = event.target.closest("button")?.dataset.key;
    if (key) press(key);
  };
  // The focus stays in the terminal, so that the touch keyboard stays open.
  row.onpointerdown = (event) => event.preventDefault();
  // A touch keyboard covers the lower part of the page, and not every browser shrinks the page.
  const view = globalThis.visualViewport;
  view?.addEventListener("resize", () => {
    document.body.style.height = `${view.height}px`;
  });
  return (text) => {
    if (!isArmed() || [...text].length !== 1) return text;
    arm(false);
    return control(text);
  };
}
