// Search in the output of a terminal.
import { SearchAddon } from "@xterm/addon-search";
import { text as say } from "./texts.js";

// The addon requires hexadecimal colours without alpha.
const DECORATIONS = {
  matchBackground: "#7a5c00",
  matchOverviewRuler: "#7a5c00",
  activeMatchBackground: "#a8431c",
  activeMatchColorOverviewRuler: "#a8431c",
};

/** Adds the search to a terminal; returns a function that opens it. */
export function joinSearch(terminal) {
  const addon = new SearchAddon();
  terminal.loadAddon(addon);
  const form = document.querySelector("#search");
  const text = document.querySelector("#search-text");
  const count = document.querySelector("#search-count");
  const find = (back, incremental) => {
    const options = { decorations: DECORATIONS, incremental };
    if (back) addon.findPrevious(text.value, options);
    else addon.findNext(text.value, options);
    if (!text.value) count.textContent = "";
  };

  function close() {
    form.hidden = true;
    addon.clearDecorations();
    terminal.clearSelection();
    terminal.focus();
  }

  addon.onDidChangeResults(({ resultIndex, resultCount }) => {
    const places = { place: resultIndex + 1, count: resultCount };
    const found = resultIndex < 0 ? `${resultCount}` : say("terminal.found", places);
    if (text.value) count.textContent = resultCount ? found : say("terminal.nothing_found");
  });
  // Backwards, so that the latest output is found first.
  text.oninput = () => find(true, true);
  form.onsubmit = (event) => {
    event.preventDefault();
    find(true);
  };
  form.onkeydown = (event) => {
    if (event.key === "Escape") close();
    else if (event.key === "Enter" && event.shiftKey) find(false);
    else return;
    event.preventDefault();
  };
  document.querySelector("#search-next").onclick = () => find(false);
  document.querySelector("#search-close").onclick = close;
  return () => {
    form.hidden = false;
    text.focus();
    text.select();
  };
}
