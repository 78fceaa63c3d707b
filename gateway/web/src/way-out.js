// The way out of a screen that takes every key, Tab too: Ctrl+Alt+Shift leads to the bar (WCAG 2.2, 2.1.2).

const TOOLS = ".tools :is(button:enabled, select, summary, a[href])";

const isShown = (element) => element.checkVisibility?.() ?? element.offsetParent !== null;

/** Joins the way out of the screen to which takesKeys(element) belongs; left() is called on it. */
export function joinWayOut(takesKeys, left = () => {}) {
  addEventListener(
    "keydown",
    (event) => {
      // AltGr is Ctrl and Alt to some browsers, and writes characters.
      if (!event.ctrlKey || !event.altKey || !event.shiftKey || event.getModifierState("AltGraph")) return;
      if (!takesKeys(document.activeElement)) return;
      [...document.querySelectorAll(TOOLS)].find(isShown)?.focus();
      left();
    },
    { capture: true },
  );
}

/** Has the way out read to whoever comes to an element by keys, where the page tells of one. */
export function describe(element) {
  if (document.querySelector("#way-out")) element?.setAttribute("aria-describedby", "way-out");
}
