"""Hostile bytes, one line a case."""

from __future__ import annotations

from pathlib import Path

HERE = Path(__file__).parent


def read_lines(name: str) -> list[str]:
    """Return the cases of the file *name*."""
    lines = (HERE / f"{name}.txt").read_text("ascii").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def read_corpus(name: str) -> list[list[str]]:
    """Return the cases of the file *name*, each as its columns, three at most."""
    return [line.split(" | ", 2) for line in read_lines(name)]


def unescape(text: str) -> bytes:
    """Return the bytes that *text* means as a Python literal."""
    return text.encode("ascii").decode("unicode_escape").encode("latin-1")
