"""Volumes: the claim of a volume for an owner, and the folder of a job's file in it.

A volume is written ``name=claim[/folder…][:ro]``. ``{user}`` and ``{project}`` in claim or folder,
one a part, stand for the job's owner. Names are inserted unchanged, so that two owners never share
a place. An owner whose name is invalid there (a slash in the name of a folder, a capital letter in
a claim's) is refused. A place belongs to its first owner.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Final

from controller.jobs.spec.accepted import read_spec
from controller.jobs.spec.field_types import VolumePath, parse_path
from controller.jobs.spec.model import Owner
from controller.jobs.spec.problems import JobRejected
from controller.store.database import Store, Transaction
from controller.store.jobs.folders import HeldPlace, any_places, hold_places, others_places
from controller.store.jobs.job_rows import JobRecord, oldest_jobs

_NAME: Final = re.compile(r"[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?", re.ASCII)
_CLAIM: Final = re.compile(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?", re.ASCII)
_PLACEHOLDER: Final = re.compile(r"\{([^{}]*)\}")
_PLACEHOLDERS: Final = ("user", "project")


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeSource:
    """The place of a volume: a claim in the job's namespace, and a folder in it."""

    claim: str
    folder: str = ""
    read_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimPath:
    """The place of a file: ``sub_path`` is empty for the whole claim.

    All files of the owner in the volume are in ``folder``, with which ``sub_path`` begins.
    ``holder`` are the owner's names in it; none if the volume is shared by all.
    """

    claim: str
    folder: str
    sub_path: str
    read_only: bool
    holder: tuple[tuple[str, str], ...] = field(default=(), compare=False)

    def folder_in(self, root: str) -> str:
        """Return the path of ``folder`` if the claim is mounted at *root*."""
        return f"{root}/{self.folder}" if self.folder else root


def find_place(path: VolumePath, owner: Owner, volumes: Mapping[str, VolumeSource]) -> ClaimPath:
    """Return the place of the owner's *path*.

    Raises:
        ValueError: If there is no such volume, or the owner has no place in it.
    """
    source = volumes.get(path.volume)
    if source is None:
        there = ", ".join(sorted(volumes)) or "none"
        raise ValueError(f"there is no volume {path.volume}; there are: {there}")
    claim = _filled(source.claim, owner)
    if not _CLAIM.fullmatch(claim):
        raise ValueError(f"the owner's name cannot be part of the claim of {path.volume}")
    parts = [part for part in source.folder.split("/") if part]
    folders = [_folder(part, owner) for part in parts]
    if any(_hides(parts, folders, other) for other in volumes.values() if other.claim == claim):
        raise ValueError("the owner's name is that of a folder of another volume")
    return ClaimPath(
        claim=claim,
        folder="/".join(folders),
        sub_path="/".join([*folders, *path.rest]),
        read_only=source.read_only,
        holder=_holder(source, owner),
    )


def _hides(parts: Sequence[str], filled: Sequence[str], other: VolumeSource) -> bool:
    """Return whether an owner's name leads to the parent of the folders of *other*'s owners."""
    fixed = list(takewhile(lambda part: "{" not in part, other.folder.split("/")))
    if not other.folder or len(filled) > len(fixed):
        return False
    named = any(_PLACEHOLDER.search(part) for part in parts)
    return named and list(filled) == fixed[: len(filled)]


def _holder(source: VolumeSource, owner: Owner) -> tuple[tuple[str, str], ...]:
    names = {"user": owner.user, "project": owner.project or ""}
    used = set(_PLACEHOLDER.findall(f"{source.claim}/{source.folder}"))
    return tuple((kind, names[kind]) for kind in sorted(used))


def loose_patterns(volumes: Mapping[str, VolumeSource]) -> list[str]:
    """Return the volumes with text after a placeholder: several names may yield one place."""
    return [
        name
        for name, source in volumes.items()
        if re.search(r"\}[^/]", f"{source.claim}/{source.folder}")
    ]


def _folder(part: str, owner: Owner) -> str:
    filled = _filled(part, owner)
    # A name such as ``..`` would lead to another owner's files.
    if parse_path(f"/{filled}").rest or filled.endswith("/"):
        raise ValueError("the owner's name cannot be the name of a folder")
    return filled


def _filled(template: str, owner: Owner) -> str:
    names = {"user": owner.user, "project": owner.project}

    def name(match: re.Match[str]) -> str:
        found = names[match[1]]
        if found is None:
            raise ValueError(f"the owner has no {match[1]}, which the volume requires")
        return found

    return _PLACEHOLDER.sub(name, template)


def parse_volumes(raw: str) -> dict[str, VolumeSource]:
    """Return the volumes that *raw* lists, by name.

    Raises:
        ValueError: With all problems.
    """
    found: dict[str, VolumeSource] = {}
    problems: list[str] = []
    for part in filter(None, (one.strip() for one in raw.split(","))):
        name, _, source = part.partition("=")
        try:
            if name in found:
                raise ValueError("is listed twice")
            found[name] = _source(name, source)
        except ValueError as error:
            problems.append(f"{part}: {error}")
    if problems:
        raise ValueError("; ".join(problems))
    return found


def _source(name: str, raw: str) -> VolumeSource:
    if not _NAME.fullmatch(name):
        raise ValueError("not <name>=<claim>[/<folder>][:ro]")
    plain = raw.removesuffix(":ro")
    claim, _, folder = plain.partition("/")
    unknown = [one for one in _PLACEHOLDER.findall(plain) if one not in _PLACEHOLDERS]
    if unknown:
        raise ValueError(f"{{{unknown[0]}}} is neither {{user}} nor {{project}}")
    if any(len(_PLACEHOLDER.findall(part)) > 1 for part in plain.split("/")):
        raise ValueError("two placeholders in one part are ambiguous")
    if not _CLAIM.fullmatch(_PLACEHOLDER.sub("x", claim)):
        raise ValueError("has no claim")
    if folder:
        parse_path(f"/{_PLACEHOLDER.sub('x', folder)}")
    return VolumeSource(claim=claim, folder=folder.rstrip("/"), read_only=raw.endswith(":ro"))


_AT_ONCE: Final = 200


async def remember_places(store: Store, volumes: Mapping[str, VolumeSource]) -> None:
    """Record the places of stored jobs in a store that has none yet.

    These jobs were accepted before places were recorded: the owner of the oldest job gets a place.
    """
    if not any("{" in f"{one.claim}/{one.folder}" for one in volumes.values()):
        return
    async with store.read() as transaction:
        if await any_places(transaction):
            return
    last = (-1.0, "")
    while True:
        async with store.write() as transaction:
            records = await oldest_jobs(transaction, after=last, limit=_AT_ONCE)
            for record in records:
                await _remember(transaction, record, volumes)
        if len(records) < _AT_ONCE:
            return
        last = (records[-1].created_at, records[-1].id)


async def _remember(
    transaction: Transaction, record: JobRecord, volumes: Mapping[str, VolumeSource]
) -> None:
    try:
        job = read_spec(record.spec, {})
    except JobRejected:
        return  # written by a newer version, which records its places itself
    for file in job.files():
        try:
            place = find_place(file.source, job.owner, volumes)
        except ValueError:
            continue  # the volume was removed
        held = HeldPlace(record.namespace, place.claim, place.folder, place.holder)
        if place.holder and not (await others_places(transaction, [held]))[held]:
            await hold_places(transaction, [held])
