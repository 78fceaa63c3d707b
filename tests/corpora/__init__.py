"""Hostile bytes, one line a case: for the relay and its cores, and for running gateways."""

from __future__ import annotations

from pathlib import Path

HERE = Path(__file__).parent


def read_lines(name: str) -> list[str]:
    """Return the cases of the file *name*."""
    lines = (HERE / f"{name}.txt").read_text("ascii").splitlines()
    return [line for line in lines if line and not line.startswith("# ")]


def read_corpus(name: str, columns: int, between: str = " | ") -> list[tuple[str, ...]]:
    """Return the cases of the file *name*, each as its columns, with escapes unchanged."""
    cases = [tuple(line.split(between, columns - 1)) for line in read_lines(name)]
    assert all(len(case) == columns for case in cases), name
    return cases


def unescape(text: str) -> str:
    """Return the value of *text* as a Python literal."""
    return text.encode("ascii").decode("unicode_escape")


def bytes_of(text: str, **words: str) -> bytes:
    """Return the bytes of *text* as a Python literal, with *words* for the names in braces."""
    raw = unescape(text)
    for name, value in words.items():
        raw = raw.replace(f"{{{name}}}", value)
    return raw.encode("latin-1")
