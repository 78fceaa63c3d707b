"""Puts a mutant into this process."""

from __future__ import annotations

import gc
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from types import CodeType, FunctionType, ModuleType

Key = tuple[str, int]


class Functions:
    """The functions of an imported module, whose code is replaced by a mutant's."""

    def __init__(self, code: CodeType) -> None:
        self._codes = _by_key(code)
        wanted = set(self._codes)
        # The garbage collector does not list frozen objects, and tests/conftest.py freezes all.
        gc.unfreeze()
        self._functions = [
            (found, key)
            for found in gc.get_objects()
            if isinstance(found, FunctionType)
            and found.__code__.co_filename == code.co_filename
            and (key := _key(found.__code__)) in wanted
        ]
        gc.freeze()

    def changed(self, mutated: CodeType) -> dict[Key, CodeType]:
        """Return the new code of the functions that the mutant changes."""
        after = _by_key(mutated)
        return {key: code for key, code in after.items() if self._codes.get(key) != code}

    def have(self, changed: dict[Key, CodeType]) -> bool:
        """Return whether one of these functions exists in the process."""
        return any(key in changed for _, key in self._functions)

    def take(self, changed: dict[Key, CodeType]) -> None:
        """Give the functions their new code."""
        for function, key in self._functions:
            if key in changed:
                function.__code__ = changed[key]


def _key(code: CodeType) -> Key:
    return code.co_qualname, code.co_firstlineno


def _by_key(code: CodeType) -> dict[Key, CodeType]:
    """Return the code of every function that has a key of its own."""
    found = list(_inner(code))
    often = Counter(_key(one) for one in found)
    return {_key(one): one for one in found if often[_key(one)] == 1}


def _inner(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _inner(constant)


class Finder(MetaPathFinder):
    """Imports one module from given code."""

    def __init__(self, name: str, path: str, code: CodeType) -> None:
        self._name, self._path, self._code = name, path, code

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the mutant's spec for its name alone."""
        if fullname != self._name:
            return None
        loader = _Loader(self._name, self._path, self._code)
        return spec_from_file_location(fullname, self._path, loader=loader)

    def install(self) -> None:
        """Serve all imports of this process from now on."""
        sys.meta_path.insert(0, self)


class _Loader(SourceFileLoader):
    def __init__(self, name: str, path: str, code: CodeType) -> None:
        super().__init__(name, path)
        self._code = code

    def get_code(self, fullname: str) -> CodeType:
        return self._code
