// The touch keyboard: it writes into fields only, so the page has an invisible one. Changes of its
// text are sent to the desktop as keys.

// X11 keysyms: for characters beyond Latin-1, the code point plus this bit (X11, appendix A).
const UNICODE = 0x1000000;
const BACKSPACE = 0xff08;
const NAMED = {
  Backspace: BACKSPACE,
  Tab: 0xff09,
  Enter: 0xff0d,
  Escape: 0xff1b,
  Delete: 0xffff,
  Home: 0xff50,
  ArrowLeft: 0xff51,
  ArrowUp: 0xff52,
  ArrowRight: 0xff53,
  ArrowDown: 0xff54,
  PageUp: 0xff55,
  PageDown: 0xff56,
  End: 0xff57,
};
// The field is never empty, since touch keyboards send no event for Backspace in an empty field. Not
// spaces, since keyboards turn two of them into a full stop.
const FILLER = "_".repeat(32);
const LONGEST = 256;

/** Returns the keysym of a character; 0 if it has none. */
function keysymOf(character) {
  const code = character.codePointAt(0);
  if (character === "\n") return NAMED.Enter;
  if (character === "\t") return NAMED.Tab;
  if (code < 0x20 || (code >= 0x7f && code < 0xa0)) return 0;
  return code < 0x100 ? code : UNICODE + code;
}

/** Returns the keys that turn the text `before` into `now`, typed at its end. */
export function keysBetween(before, now) {
  const [old, fresh] = [[...before], [...now]];
  let same = 0;
  while (same < old.length && same < fresh.length && old[same] === fresh[same]) same += 1;
  const typed = fresh.slice(same).map(keysymOf).filter(Boolean);
  return [...old.slice(same).map(() => BACKSPACE), ...typed];
}

/** Connects button and field to the desktop current(); calls cover(covered) for the keyboard. */
export function joinKeyboard(current, cover) {
  const button = document.querySelector("#keyboard");
  const field = document.querySelector("#typed");
  let before = FILLER;

  function press(keysym) {
    current()?.sendKey(keysym);
  }

  function refill() {
    before = field.value = FILLER;
    field.setSelectionRange(FILLER.length, FILLER.length);
  }

  function changed(shown) {
    button.setAttribute("aria-pressed", String(shown));
    if (shown) cover(true);
    takeHeight();
    if (!shown) cover(false);
  }

  // The keyboard covers the lower part of the page, and not every browser shrinks the page.
  const view = globalThis.visualViewport;
  function takeHeight() {
    const shown = document.activeElement === field;
    document.body.style.height = shown && view ? `${view.height}px` : "";
  }
  view?.addEventListener("resize", takeHeight);

  field.addEventListener("focus", () => {
    refill();
    changed(true);
  });
  field.addEventListener("blur", () => changed(false));
  field.addEventListener("input", ({ isComposing }) => {
    keysBetween(before, field.value).forEach(press);
    before = field.value;
    if (!isComposing && (before.length < FILLER.length / 2 || before.length > LONGEST)) refill();
  });
  field.addEventListener("compositionend", () => before.length > LONGEST && refill());
  field.addEventListener("keydown", (event) => {
    // Composed text changes the field and is handled by the input event.
    if (event.isComposing || !Object.hasOwn(NAMED, event.key)) return;
    event.preventDefault();
    press(NAMED[event.key]);
  });

  // The focus stays until the click, so that the button can also close the keyboard.
  button.onpointerdown = (event) => event.preventDefault();
  button.onclick = () => {
    if (document.activeElement === field) current()?.focus();
    else field.focus();
  };
  button.hidden = document.body.dataset.mode !== "control" || !matchMedia("(any-pointer: coarse)").matches;
  return () => document.activeElement === field;
}
