"""Objects in memory under one revision counter, and the changes since a revision.

A stored object is never changed in place: a write replaces it. Each is also kept encoded, so that
lists and watches copy bytes instead of encoding again.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal, Self

import msgspec

from deploy.local.cluster.apiserver.kinds import Object

Key = tuple[str, str]
Change = Literal["ADDED", "MODIFIED", "DELETED"]

_FIRST: Final = 100
"""No client finds a cluster at its first revision: earlier ones are compacted."""

HISTORY: Final = 4096
"""The number of changes kept for each kind; a watch from before them gets 410."""


@dataclass(frozen=True, slots=True)
class Stored:
    """An object at its revision."""

    value: Object
    raw: bytes
    """Its encoding, which begins with kind and apiVersion."""

    @classmethod
    def of(cls, value: Object) -> Self:
        """Return *value* with its encoding; the caller must not change *value* any more."""
        typed = {name: value[name] for name in ("kind", "apiVersion") if name in value}
        return cls(value, msgspec.json.encode({**typed, **value}))

    @property
    def untyped(self) -> bytes:
        """The encoding without kind and apiVersion."""
        typed = msgspec.json.encode([self.value["kind"], self.value["apiVersion"]])
        # {"kind":X,"apiVersion":Y,… has as much before its third field as [X,Y] and the names.
        return b"{" + self.raw[len(typed) + len(b'"kind":"apiVersion":') :]

    @property
    def revision(self) -> int:
        """The revision of its last change."""
        return int(self.value["metadata"]["resourceVersion"])

    @property
    def place(self) -> tuple[str, str]:
        """Its namespace (empty for an object without one) and its name."""
        metadata = self.value["metadata"]
        return metadata.get("namespace", ""), metadata["name"]

    @property
    def labels(self) -> Mapping[str, str]:
        """Its labels."""
        return self.value["metadata"].get("labels") or {}

    def copy(self) -> Object:
        """Return a copy that the caller may change."""
        copy: Object = msgspec.json.decode(self.raw)
        return copy


@dataclass(frozen=True, slots=True)
class Event:
    """One change. A selector needs the state before as well as the state after."""

    revision: int
    change: Change
    now: Stored
    before: Stored | None


Listener = Callable[[Key, Event], None]


class Store:
    """All objects of all kinds under one revision counter."""

    def __init__(self) -> None:
        self.revision = _FIRST
        self._objects: dict[Key, dict[str, dict[str, Stored]]] = defaultdict(dict)
        self._history: dict[Key, deque[Event]] = defaultdict(lambda: deque(maxlen=HISTORY))
        self._oldest: dict[Key, int] = defaultdict(lambda: _FIRST)
        self._listeners: list[Listener] = []
        self._labelled: dict[tuple[Key, str, str], set[tuple[str, str]]] = defaultdict(set)

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Call *listener* at every change from now on; the returned function stops that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def get(self, key: Key, namespace: str, name: str) -> Stored | None:
        """Return the object, or None."""
        return self._objects[key].get(namespace, {}).get(name)

    def labelled(self, key: Key, namespace: str, labels: Mapping[str, str]) -> list[Stored]:
        """Return the objects of `items` that have all of *labels*; others are not visited."""
        if not labels:
            return self.items(key, namespace)
        none: set[tuple[str, str]] = set()
        sets = [self._labelled.get((key, *pair), none) for pair in labels.items()]
        smallest = min(sets, key=len)
        places = (p for p in smallest if namespace in ("", p[0]) and all(p in s for s in sets))
        return [self._objects[key][space][name] for space, name in sorted(places)]

    def labelled_at(
        self, key: Key, namespace: str, labels: Mapping[str, str], revision: int
    ) -> list[Stored] | None:
        """Return `labelled` at *revision*, or None if that is no longer known."""
        changes = self.since(key, revision)
        if changes is None:
            return None
        found = self.labelled(key, namespace, labels)
        if not changes:
            return found
        then = {item.place: item for item in found}
        for event in reversed(changes):
            place = event.now.place
            if namespace not in ("", place[0]):
                continue
            if event.before is None:
                then.pop(place, None)
            else:
                then[place] = event.before
        wanted = labels.items()
        then = {place: was for place, was in then.items() if wanted <= was.labels.items()}
        return [then[place] for place in sorted(then)]

    def items(self, key: Key, namespace: str = "") -> list[Stored]:
        """Return the objects of one namespace, or of all, in the order of their names."""
        spaces = self._objects[key]
        chosen = [namespace] if namespace else sorted(spaces)
        return [
            item
            for space in chosen
            for _, item in sorted(spaces.get(space, {}).items(), key=lambda pair: pair[0])
        ]

    def in_namespace(self, namespace: str) -> Iterator[tuple[Key, Stored]]:
        """Yield every object of every kind in *namespace*."""
        for key, spaces in self._objects.items():
            for item in list(spaces.get(namespace, {}).values()):
                yield key, item

    def put(self, key: Key, value: Object) -> Stored:
        """Store *value* with a new revision; the caller must not change *value* any more."""
        metadata = value["metadata"]
        namespace, name = metadata.get("namespace", ""), metadata["name"]
        before = self.get(key, namespace, name)
        stored = self._revised(value)
        self._objects[key].setdefault(namespace, {})[name] = stored
        self._index(key, before, stored)
        change: Change = "MODIFIED" if before else "ADDED"
        self._notify(key, Event(self.revision, change, stored, before))
        return stored

    def remove(self, key: Key, stored: Stored) -> Stored:
        """Remove the object; the returned object has the revision of the removal."""
        metadata = stored.value["metadata"]
        namespace, name = metadata.get("namespace", ""), metadata["name"]
        del self._objects[key][namespace][name]
        if not self._objects[key][namespace]:
            del self._objects[key][namespace]
        self._index(key, stored, None)
        last = self._revised(stored.copy())
        self._notify(key, Event(self.revision, "DELETED", last, stored))
        return last

    def since(self, key: Key, revision: int) -> list[Event] | None:
        """Return the changes after *revision*, or None if they are no longer known."""
        history = self._history[key]
        if revision < self._oldest[key]:
            return None
        return [event for event in history if event.revision > revision]

    def oldest(self, key: Key) -> int:
        """Return the oldest revision that a watch of *key* can start from."""
        return self._oldest[key]

    def compact(self) -> None:
        """Forget all earlier changes, as etcd does every few minutes."""
        for key in list(self._objects):
            self._history[key].clear()
            self._oldest[key] = self.revision

    def _revised(self, value: Object) -> Stored:
        self.revision += 1
        value["metadata"]["resourceVersion"] = str(self.revision)
        return Stored.of(value)

    def _index(self, key: Key, before: Stored | None, now: Stored | None) -> None:
        old, new = _labels(before), _labels(now)
        for label, value in old.keys() - new.keys():
            places = self._labelled[key, label, value]
            places.discard(old[label, value])
            if not places:
                del self._labelled[key, label, value]
        for label, value in new.keys() - old.keys():
            self._labelled[key, label, value].add(new[label, value])

    def _notify(self, key: Key, event: Event) -> None:
        history = self._history[key]
        if len(history) == HISTORY:
            self._oldest[key] = history[0].revision
        history.append(event)
        for listener in list(self._listeners):
            listener(key, event)


def _labels(stored: Stored | None) -> dict[tuple[str, str], tuple[str, str]]:
    """Return each label and its value, with the object's place."""
    if stored is None:
        return {}
    return dict.fromkeys(stored.labels.items(), stored.place)
