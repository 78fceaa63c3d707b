"""Tests the check of long sentences, and that the documentation has few of them."""

from __future__ import annotations

from pathlib import Path

from deploy.long_sentences import MOST_LONG, MOST_WORDS, long_sentences, sentences_of

PAGE = """# A heading. With a full stop

A sentence that goes
on. Another one with `code. And more`, [a link. Here](there.md "x. y") and 3.5 s? A third: one!

| a table. | is no. Prose |

- An item. Another sentence of it,
  which goes on.
- The next item

```sh
no prose. At all
```
"""


def test_a_page_is_split_into_sentences() -> None:
    assert [(one.line, one.text) for one in sentences_of(PAGE)] == [
        (3, "A sentence that goes on."),
        (3, "Another one with X, a link."),
        (3, "Here and 3.5 s?"),
        (3, "A third: one!"),
        (8, "An item."),
        (8, "Another sentence of it, which goes on."),
        (10, "The next item"),
    ]


def test_words_are_counted_without_punctuation() -> None:
    (one,) = sentences_of("It is – as *RFC 9110* (section 7) has it – 1,000 × `x y z` / 2.")
    assert one.words == 12


def test_a_too_long_sentence_is_reported_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "docs" / "deep").mkdir(parents=True)
    words = " ".join(["Word"] * MOST_WORDS)
    (tmp_path / "README.md").write_text(f"Short.\n\n{words}.\n")
    (tmp_path / "docs" / "deep" / "page.md").write_text(f"# Page\n\n- Short. {words} more.\n")
    assert long_sentences(tmp_path) == [
        f"docs/deep/page.md:3: {MOST_WORDS + 1} words: {words} more."
    ]


def test_the_documentation_has_few_long_sentences() -> None:
    assert len(long_sentences()) <= MOST_LONG
