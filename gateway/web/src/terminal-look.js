// The choices of the menu: theme, text size, screen reader mode, and what a Mac's Option key does.

const KEPT = "fumarole-terminal-look";
const SMALLEST = 8;
const LARGEST = 32;
const SYSTEM = matchMedia("(prefers-color-scheme: dark)");
const COLOURS = {
  dark: {
    background: "#101214",
    foreground: "#e6e4e1",
    cursor: "#f0906a",
    cursorAccent: "#101214",
    selectionBackground: "#4a4f57",
    // Also for matches of the search.
    selectionInactiveBackground: "#a8431c",
  },
  light: {
    background: "#fbfaf8",
    foreground: "#1f2328",
    cursor: "#a8431c",
    cursorAccent: "#fbfaf8",
    selectionBackground: "#f0cdbd",
    selectionInactiveBackground: "#f0a988",
    black: "#1f2328",
    red: "#b3261e",
    green: "#1a7f4b",
    yellow: "#946200",
    blue: "#0b57d0",
    magenta: "#8e3bb0",
    cyan: "#0b7285",
    white: "#6b7280",
    brightBlack: "#57606a",
    brightRed: "#cf222e",
    brightGreen: "#1a7f37",
    brightYellow: "#9a6700",
    brightBlue: "#0969da",
    brightMagenta: "#a33bc2",
    brightCyan: "#1b7c83",
    brightWhite: "#8c959f",
  },
};

/** The initial options of every terminal. */
export const FIRST_LOOK = {
  fontFamily: 'ui-monospace, "Cascadia Mono", "DejaVu Sans Mono", Menlo, Consolas, monospace',
  fontSize: 14,
  theme: COLOURS.dark,
  // Programs choose colours without knowing the background (WCAG 2.2, 1.4.3 and 1.4.6).
  minimumContrastRatio: matchMedia("(forced-colors: active)").matches ? 7 : 4.5,
};

/** Returns the stored choice, or the default if there is none that is valid; never throws. */
function kept() {
  try {
    const { theme, size, reader, meta } = JSON.parse(localStorage.getItem(KEPT)) ?? {};
    return {
      theme: theme === "light" || theme === "dark" ? theme : "",
      size: size >= SMALLEST && size <= LARGEST ? Math.round(size) : FIRST_LOOK.fontSize,
      reader: reader === true,
      meta: meta === true,
    };
  } catch {
    return { theme: "", size: FIRST_LOOK.fontSize, reader: false, meta: false };
  }
}

function keep(look) {
  try {
    localStorage.setItem(KEPT, JSON.stringify(look));
  } catch {
    // Without storage the choice holds for this page only.
  }
}

/** Connects the menu's controls to a terminal; calls changed() when the cell size may change. */
export function joinLook(terminal, changed) {
  const look = kept();
  const theme = document.querySelector("#theme");
  const reader = document.querySelector("#reader");
  // Option types @, [, { and | on many keyboards, so it is Meta only by choice.
  const meta = document.querySelector("#meta");
  meta.parentElement.hidden = !navigator.platform.startsWith("Mac");
  const size = document.querySelector("#size");

  function show() {
    const dark = look.theme ? look.theme === "dark" : SYSTEM.matches;
    document.documentElement.dataset.theme = dark ? "dark" : "light";
    terminal.options.theme = COLOURS[dark ? "dark" : "light"];
    terminal.options.fontSize = look.size;
    terminal.options.screenReaderMode = look.reader;
    terminal.options.macOptionIsMeta = look.meta;
    theme.value = look.theme;
    reader.checked = look.reader;
    meta.checked = look.meta;
    size.textContent = `${look.size} px`;
    changed();
  }

  function choose(what) {
    Object.assign(look, what);
    keep(look);
    show();
  }

  const larger = (step) => choose({ size: Math.min(LARGEST, Math.max(SMALLEST, look.size + step)) });
  theme.onchange = () => choose({ theme: theme.value });
  reader.onchange = () => choose({ reader: reader.checked });
  meta.onchange = () => choose({ meta: meta.checked });
  document.querySelector("#smaller").onclick = () => larger(-1);
  document.querySelector("#larger").onclick = () => larger(1);
  SYSTEM.addEventListener("change", show);
  show();
}
