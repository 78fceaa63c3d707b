// Ctrl+Alt+Shift moves the focus to the bar, out of a screen that takes every key (WCAG 2.2, 2.1.2).

const TOOLS = ".tools :is(button:enabled, select, summary, a[href])";

const KEYS = ["Control", "Alt", "Shift"];
// Firefox on Linux often sets a modifier's flag only after that modifier's own event.
const isHeld = (event, key) => event.key === key || event.getModifierState(key);
const isShown = (element) => element.checkVisibility?.() ?? element.offsetParent !== null;

/** Adds the shortcut for elements where takesKeys(element); calls left() after it. */
export function joinWayOut(takesKeys, left = () => {}) {
  addEventListener(
    "keydown",
    (event) => {
      // Some browsers report AltGr, which types characters, as Ctrl and Alt.
      if (event.getModifierState("AltGraph") || !KEYS.every((key) => isHeld(event, key))) return;
      if (!takesKeys(document.activeElement)) return;
      [...document.querySelectorAll(TOOLS)].find(isShown)?.focus();
      left();
    },
    { capture: true },
  );
}

/** Describes the shortcut to screen readers at an element, if the page has a description. */
export function describe(element) {
  if (document.querySelector("#way-out")) element?.setAttribute("aria-describedby", "way-out");
}
