// How many cells a character takes: as programs in the shell count, by wcwidth() of a current C
// library. If both differ, everything to the right of an emoji is drawn at the wrong place.
import { Unicode11Addon } from "@xterm/addon-unicode11";

const EMOJI = /\p{Emoji_Presentation}/u;
// Half of a flag takes one cell.
const LAST_HALF_OF_A_FLAG = 0x1f1ff;

/** Makes *terminal* count as wcwidth() does, with the emoji that the browser knows. */
export function joinWidths(terminal) {
  let provider;
  new Unicode11Addon().activate({ unicode: { register: (one) => (provider = one) } });
  const known = provider.wcwidth.bind(provider);
  const isNewEmoji = (code) => code > LAST_HALF_OF_A_FLAG && EMOJI.test(String.fromCodePoint(code));
  provider.wcwidth = (code) => {
    const width = known(code);
    return width === 1 && isNewEmoji(code) ? 2 : width;
  };
  terminal.unicode.register(provider);
  terminal.unicode.activeVersion = provider.version;
}
