// Touch keyboards, input methods (Chinese, Japanese, Korean) and dead keys write into fields only, so
// the page has an invisible one. Changes of its text are sent to the desktop as keys. Shortcuts and
// other keys without text are forwarded to noVNC.

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
// The field composes text of these.
const COMPOSED = new Set(["Dead", "Process", "Unidentified"]);
// The keyCode of a key that an input method has taken (UI Events, 7.3.1). Safari has no other sign of
// the Enter that ends a composition.
const TAKEN = 229;
const LOCKS = ["CapsLock", "NumLock", "ScrollLock"];

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

/** Returns whether a key writes text into a field. */
function isText(event) {
  if (event.isComposing || event.keyCode === TAKEN || COMPOSED.has(event.key)) return true;
  const isShortcut = event.ctrlKey || event.altKey || event.metaKey;
  return [...event.key].length === 1 && (!isShortcut || event.getModifierState("AltGraph"));
}

/** Forwards a key to noVNC, which listens at its canvas. */
function forward(event, type = event.type) {
  const locks = Object.fromEntries(LOCKS.map((name) => [`modifier${name}`, event.getModifierState(name)]));
  const { key, code, location, repeat, ctrlKey, altKey, shiftKey, metaKey } = event;
  const same = { key, code, location, repeat, ctrlKey, altKey, shiftKey, metaKey, ...locks };
  document.querySelector(".desktop-screen canvas")?.dispatchEvent(new KeyboardEvent(type, same));
}

/**
 * Connects button and field to the desktop current(). Calls tell(shown, covers) when the field
 * begins or ends to take the keys; covers is set if a touch keyboard covers a part of the page.
 */
export function joinKeyboard(current, tell) {
  const button = document.querySelector("#keyboard");
  const field = document.querySelector("#typed");
  // Laptops may have a touch screen beside their keyboard.
  const isTouched = matchMedia("(pointer: coarse)").matches;
  const down = new Map();
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
    if (shown) tell(true, isTouched);
    takeHeight();
    if (!shown) tell(false, false);
  }

  // The keyboard covers the lower part of the page, and not every browser shrinks the page.
  const view = globalThis.visualViewport;
  function takeHeight() {
    const shown = isTouched && document.activeElement === field;
    document.body.style.height = shown && view ? `${view.height}px` : "";
  }
  view?.addEventListener("resize", takeHeight);

  field.addEventListener("focus", () => {
    refill();
    changed(true);
  });
  field.addEventListener("blur", () => {
    for (const event of down.values()) forward(event, "keyup");
    down.clear();
    changed(false);
  });
  function send() {
    keysBetween(before, field.value).forEach(press);
    before = field.value;
  }

  field.addEventListener("input", ({ isComposing }) => {
    // Touch keyboards compose every word, and show it nowhere else. Of others, only the result counts.
    if (isComposing && !isTouched) return;
    send();
    if (!isComposing && (before.length < FILLER.length / 2 || before.length > LONGEST)) refill();
  });
  field.addEventListener("compositionend", () => {
    send();
    if (before.length > LONGEST) refill();
  });
  field.addEventListener("keydown", (event) => {
    // Text changes the field and is handled by the input event.
    if (isText(event)) return;
    event.preventDefault();
    if (Object.hasOwn(NAMED, event.key)) {
      press(NAMED[event.key]);
    } else if (event.code) {
      down.set(event.code, event);
      forward(event);
    }
  });
  field.addEventListener("keyup", (event) => down.delete(event.code) && forward(event));

  // The focus stays until the click, so that the button can also close the keyboard.
  button.onpointerdown = (event) => event.preventDefault();
  button.onclick = () => {
    if (document.activeElement === field) current()?.focus();
    else field.focus();
  };
  button.hidden = document.body.dataset.mode !== "control";
  return () => document.activeElement === field;
}
