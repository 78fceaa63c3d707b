"""Old import paths of plugins of 0.1: they work for one minor version, with a warning."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from importlib import import_module
from typing import Any


def forwarded(old: str, new: str) -> Callable[[str], Any]:
    """Return a module's ``__getattr__`` that looks up names of the module *old* in *new*."""

    def get(name: str) -> Any:
        try:
            found = getattr(import_module(new), name)
        except AttributeError:
            raise AttributeError(f"module {old!r} has no attribute {name!r}") from None
        if not name.startswith("__"):
            text = f"{old} goes with Fumarole 0.3: import {name} from controller.plugin_api"
            warnings.warn(text, DeprecationWarning, stacklevel=2)
        return found

    return get
