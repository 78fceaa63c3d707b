"""Reads the lists in ``data``: a case a line, columns between bars, Python escapes."""

from __future__ import annotations

from pathlib import Path

DATA = Path(__file__).parent / "data"


def read_cases(name: str, columns: int) -> list[tuple[str, ...]]:
    """Return the cases of a list, with the escapes as they stand."""
    cases = []
    for number, line in enumerate((DATA / name).read_text().splitlines(), 1):
        if line.strip() and not line.startswith("#"):
            case = tuple(part.strip() for part in line.split(" | ", columns - 1))
            assert len(case) == columns, f"{name}:{number} has {len(case)} columns"
            cases.append(case)
    return cases


def unescape(text: str) -> str:
    r"""Return *text* with ``\r``, ``\x00`` and the like resolved."""
    return text.encode("latin-1", "backslashreplace").decode("unicode_escape")
