"""Inputs for which a promise once did not hold, one file a target, one line a case."""

from __future__ import annotations

from pathlib import Path

HERE = Path(__file__).parent


def read_corpus(name: str) -> list[bytes]:
    """Return the cases of one target."""
    path = HERE / f"{name}.txt"
    lines = path.read_text("ascii").splitlines() if path.exists() else []
    return [
        line.encode("ascii").decode("unicode_escape").encode("latin-1")
        for line in lines
        if line and not line.startswith("#")
    ]


def add_to_corpus(name: str, data: bytes, why: str) -> Path:
    """Add a case to the corpus, so that the tests replay it from now on."""
    path = HERE / f"{name}.txt"
    text = data.decode("latin-1").encode("unicode_escape").decode("ascii")
    if text.startswith("#"):
        text = r"\x23" + text[1:]
    with path.open("a", encoding="ascii") as file:
        file.write(f"# {why.splitlines()[0][:100].encode('ascii', 'replace').decode()}\n{text}\n")
    return path
