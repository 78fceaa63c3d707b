// Scrolling by a finger, which xterm.js 6.0 ignores, and by the wheel on the alternate screen, where it
// sends one line for each event.

// In these modes the program handles the wheel itself.
const WHEEL_MODES = new Set(["vt200", "drag", "any"]);

/** Adds the scrolling to an open terminal. */
export function joinScroll(terminal) {
  const screen = terminal.element.querySelector(".xterm-screen");
  let rest = 0;
  let finger = null;
  const isTaken = () => WHEEL_MODES.has(terminal.modes.mouseTrackingMode);

  function scroll(pixels, place) {
    rest += (pixels * terminal.rows) / screen.clientHeight;
    const lines = Math.trunc(rest);
    rest -= lines;
    if (isTaken()) {
      const { clientX, clientY } = place;
      const deltaMode = WheelEvent.DOM_DELTA_LINE;
      const line = { deltaY: Math.sign(lines), deltaMode, clientX, clientY, bubbles: true, cancelable: true };
      for (let left = Math.abs(lines); left; left -= 1) screen.dispatchEvent(new WheelEvent("wheel", line));
    } else if (terminal.buffer.active.type === "normal") {
      terminal.scrollLines(lines);
    } else if (lines) {
      const arrow = `\x1b${terminal.modes.applicationCursorKeysMode ? "O" : "["}${lines < 0 ? "A" : "B"}`;
      terminal.input(arrow.repeat(Math.abs(lines)), false);
    }
  }

  terminal.attachCustomWheelEventHandler((event) => {
    if (isTaken() || terminal.buffer.active.type === "normal") return true;
    event.preventDefault();
    const line = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? screen.clientHeight / terminal.rows : 1;
    scroll(event.deltaY * line, event);
    return false;
  });
  screen.addEventListener("touchstart", ({ touches }) => {
    rest = 0;
    finger = touches.length === 1 ? touches[0] : null;
  });
  screen.addEventListener(
    "touchmove",
    (event) => {
      if (!finger) return;
      event.preventDefault();
      const before = finger;
      [finger] = event.touches;
      scroll(before.clientY - finger.clientY, finger);
    },
    { passive: false },
  );
}
