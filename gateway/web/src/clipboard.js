// The clipboard of a page: which way text may go, and what of a text may be typed into a shell.

const policy = document.body.dataset.clipboard ?? "both";
const controls = document.body.dataset.mode === "control";

/** Whether text may go from this computer into the session. */
export const mayPaste = controls && (policy === "both" || policy === "in");
/** Whether text may go from the session to this computer. */
export const mayCopy = policy === "both" || policy === "out";

// ESC [ 200 ~ and ESC [ 201 ~, in their 8-bit forms too: they tell a program where a paste begins
// and ends. A text that holds the end would be typed from there on.
const BRACKETS = /(?:\x1b\[|\x9b)20[01]~/g;
// C0 but tab and newline, DEL, C1.
const CONTROLS = /[\x00-\x08\x0b-\x1f\x7f-\x9f]/g;

/** Return what of a text may be pasted: whoever wrote it may be somebody else. */
export function pasteable(text) {
  let before;
  let clean = text.replace(/\r\n?/g, "\n");
  do {
    // Again, as long as taking one away makes another one.
    before = clean;
    clean = clean.replace(BRACKETS, "");
  } while (clean !== before);
  return clean.replace(CONTROLS, "");
}

/** Calls take(text) for every paste and drop within an element, which gets nothing itself. */
export function onPaste(element, take) {
  const listen = (name, read) =>
    element.addEventListener(
      name,
      (event) => {
        event.preventDefault();
        event.stopPropagation();
        const text = read(event)?.getData("text/plain") ?? "";
        if (mayPaste && text) take(text);
      },
      { capture: true },
    );
  listen("paste", (event) => event.clipboardData);
  listen("drop", (event) => event.dataTransfer);
}

/** Lets nothing be copied out of an element where that is not allowed. */
export function guardCopy(element) {
  if (mayCopy) return;
  for (const name of ["copy", "cut", "dragstart"]) {
    element.addEventListener(
      name,
      (event) => {
        event.preventDefault();
        event.stopPropagation();
      },
      { capture: true },
    );
  }
}
