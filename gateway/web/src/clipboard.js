// The clipboard policy of a page, and the filter for text that is pasted into a shell.

const policy = document.body.dataset.clipboard ?? "both";
const controls = document.body.dataset.mode === "control";

/** Whether text may go from this computer into the session. */
export const mayPaste = controls && (policy === "both" || policy === "in");
/** Whether text may go from the session to this computer. */
export const mayCopy = policy === "both" || policy === "out";

// ESC [ 200 ~ and ESC [ 201 ~, also in their 8-bit forms, mark the begin and end of a paste. After an
// end mark within a text, the program would take the rest as typed.
const BRACKETS = /(?:\x1b\[|\x9b)20[01]~/g;
// C0 except tab and newline, DEL, C1.
const CONTROLS = /[\x00-\x08\x0b-\x1f\x7f-\x9f]/g;

/** Returns a text without control sequences, since anybody may have written it. */
export function pasteable(text) {
  let before;
  let clean = text.replace(/\r\n?/g, "\n");
  do {
    // Repeated, since removing a mark may form another one.
    before = clean;
    clean = clean.replace(BRACKETS, "");
  } while (clean !== before);
  return clean.replace(CONTROLS, "");
}

/** Calls take(text) for each paste and drop in an element, instead of the default action. */
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

/** Prevents copying out of an element if the policy does not allow it. */
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
