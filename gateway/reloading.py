"""Files that are taken anew when they change: certificates and keys that are rotated in place."""

from __future__ import annotations

import asyncio
import os
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Final, TypeAlias

LOOK_SECONDS: Final = 1.0
"""Between two looks at the files: they are on a local or memory file system in any deployment."""

_Seen: TypeAlias = tuple[tuple[int, ...], ...] | None


class ReloadedFiles(ABC):
    """Looks at *files* every second, and has them loaded anew once a change has rested.

    Make it before the files are loaded for the first time, so that no change falls in between.
    """

    def __init__(self, *files: Path) -> None:
        self._files = files
        self._seen = self._look()

    async def keep_fresh(self) -> None:
        """Look at the files every second until cancelled."""
        changed = False
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            changed = self.look(changed)

    def look(self, changed: bool) -> bool:
        """Have the files loaded if they have changed, and then have rested since the last look.

        Files that belong together are often replaced one after the other. Links are followed, so
        it does not matter which link of a path is exchanged, as those of a Kubernetes Secret are.

        Args:
            changed: What the last look returned.

        Returns:
            Whether there is a change that was not taken up yet.
        """
        seen = self._look()
        if seen != self._seen:
            self._seen = seen
            return True
        if changed:
            self._exchange()
        return False

    @abstractmethod
    def _exchange(self) -> None:
        """Load the files; keep what was loaded before where they cannot be used."""

    def _look(self) -> _Seen:
        try:
            found = [os.stat(path) for path in self._files]
        except OSError:
            return None
        return tuple((one.st_dev, one.st_ino, one.st_mtime_ns, one.st_size) for one in found)
