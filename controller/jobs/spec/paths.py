"""Where a job's files come from, ``/<volume>/<rest>``, and what they are called inside of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_LONGEST_PART: Final = 255


@dataclass(frozen=True, slots=True)
class VolumePath:
    """A place in a volume; ``rest`` is empty for the volume itself."""

    volume: str
    rest: tuple[str, ...]

    @property
    def basename(self) -> str:
        """What it is called inside of the job."""
        return self.rest[-1] if self.rest else self.volume

    @property
    def sub_path(self) -> str:
        """Where in the volume it is."""
        return "/".join(self.rest)


def parse_path(raw: str) -> VolumePath:
    """Return the place that *raw* names; a single slash at its end means nothing.

    Raises:
        ValueError: If it does not begin with a volume, goes up (``..``), or says a part as no
            file can be called.
    """
    if not raw.startswith("/"):
        raise ValueError("a path is /<volume>/<rest>")
    parts = raw[1:].removesuffix("/").split("/")
    for part in parts:
        if part in ("", ".", ".."):
            raise ValueError("a path has no empty part, no . and no ..")
        if len(part.encode()) > _LONGEST_PART:
            raise ValueError(f"a part of the path is longer than {_LONGEST_PART} bytes")
        if any(ord(c) < 32 or ord(c) == 127 for c in part):
            raise ValueError("a path has no control characters")
    return VolumePath(parts[0], tuple(parts[1:]))


def check_path(raw: str) -> str:
    """Return *raw* as :func:`parse_path` reads it, so that one place has one name.

    Raises:
        ValueError: If it is no path.
    """
    path = parse_path(raw)
    return "/".join(["", path.volume, *path.rest])


def place_of(name: str, working_directory: str) -> str:
    """Return where what is called *name* is mounted: in the working directory."""
    return f"{working_directory.rstrip('/')}/{name}"
