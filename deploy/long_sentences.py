"""Finds sentences of the documentation that are too long to be understood at one reading.

``python -m deploy.long_sentences`` lists them, and fails where there are more than a handful.
Tables, code and headings are not read. A link counts as the words that it shows, code as one word.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[1]
PAGES: Final = ("*.md", "docs/**/*.md")
MOST_WORDS: Final = 40
MOST_LONG: Final = 5

_FENCE: Final = re.compile(r"^ *(```|~~~)")
_NEW_BLOCK: Final = re.compile(r"^\s*([-*+]|\d+\.)\s+|^\s*>\s?|^\s*!!! |^\s*\?\?\? ")
_NO_PROSE: Final = re.compile(r"^\s*(#|\||<)")
_CODE: Final = re.compile(r"(`+)[^`]+\1")
_LINK: Final = re.compile(r"!?\[([^\]]*)\](\([^)]*\)|\[[^\]]*\])")
_END: Final = re.compile(r"(?<=[.!?])[\"')*_]*\s+(?=[\"'(*_]*[A-Z0-9X])|(?<=:)\s*$")
_WORD: Final = re.compile(r"[^\W_][^\s]*")


class Sentence(NamedTuple):
    """A sentence, and at which line of its page its paragraph begins."""

    line: int
    text: str

    @property
    def words(self) -> int:
        """How many words it has."""
        return len(_WORD.findall(self.text))


def sentences_of(page: str) -> Iterator[Sentence]:
    """Yield the sentences of a page in Markdown."""
    for line, block in _blocks(page):
        # Code is a name, one word, and no end of a sentence.
        text = _CODE.sub("X", _LINK.sub(r"\1", _CODE.sub("X", block)))
        for sentence in _END.split(text):
            if sentence and sentence.strip():
                yield Sentence(line, sentence.strip())


def _blocks(page: str) -> Iterator[tuple[int, str]]:
    held, began, fenced = list[str](), 0, False
    for number, line in enumerate([*page.splitlines(), ""], 1):
        fence = bool(_FENCE.match(line))
        fenced ^= fence
        prose = not (fenced or fence or _NO_PROSE.match(line) or not line.strip())
        if held and (not prose or _NEW_BLOCK.match(line)):
            yield began, " ".join(held)
            held = []
        if prose:
            began = began if held else number
            held.append(_NEW_BLOCK.sub("", line).strip())


def long_sentences(root: Path = ROOT) -> list[str]:
    """Return every sentence that is too long, with its place."""
    return [
        f"{path.relative_to(root)}:{one.line}: {one.words} words: {one.text}"
        for pattern in PAGES
        for path in sorted(root.glob(pattern))
        for one in sentences_of(path.read_text("utf-8"))
        if one.words > MOST_WORDS
    ]


def main() -> int:
    """List what is too long; 1 where that is too much."""
    found = long_sentences()
    if len(found) <= MOST_LONG:
        return 0
    print("\n".join(found))
    print(f"{len(found)} sentences have more than {MOST_WORDS} words; {MOST_LONG} may")
    return 1


if __name__ == "__main__":
    sys.exit(main())
