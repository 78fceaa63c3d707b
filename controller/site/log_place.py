"""The place of stored logs, from the environment; docs/settings.md lists the settings."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from shared.settings import Environment, existing_file, setting, text, web_url, writable_folder

_LOGS: Final = "FUMAROLE_CONTROLLER_LOGS_"
_FOLDER: Final = f"{_LOGS}FOLDER"
_S3: Final = f"{_LOGS}S3_"
LOGS_SETTINGS: Final = (
    _FOLDER,
    *(f"{_S3}{name}" for name in ("BUCKET", "PREFIX", "ENDPOINT", "REGION", "CREDENTIALS_FILE")),
)
_BUCKET: Final = re.compile(r"[a-z0-9][-.a-z0-9]{1,61}[a-z0-9]", re.ASCII)
_PREFIX: Final = re.compile(r"([-_.a-zA-Z0-9]{1,100}/){0,8}", re.ASCII)


def _bucket_name(raw: str) -> str:
    if not _BUCKET.fullmatch(raw):
        raise ValueError("not the name of a bucket")
    return raw


def _prefix(raw: str) -> str:
    if not _PREFIX.fullmatch(raw) or ".." in raw:
        raise ValueError("not a prefix such as fumarole/logs/")
    return raw


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """A bucket. Its credentials are in a file, or are found in the SDK's own ways.

    ``credentials`` is a file of the AWS command line, whose profile ``default`` is used.
    """

    name: str
    prefix: str = setting(f"{_S3}PREFIX", _prefix, "")
    endpoint: str | None = setting(f"{_S3}ENDPOINT", lambda raw: web_url(raw).geturl())
    region: str | None = setting(f"{_S3}REGION", text)
    credentials: Path | None = setting(f"{_S3}CREDENTIALS_FILE", existing_file)


LogsPlace: TypeAlias = Path | Bucket | None
"""A folder, a bucket, or None if logs are not stored."""


def read_logs_place(environment: Environment) -> LogsPlace:
    """Return the place; by default a folder beside a SQLite store."""
    bucket = _read_bucket(environment)
    named = environment.optional(_FOLDER, text)
    if bucket is not None:
        if named is not None:
            environment.problem(_FOLDER, f"has no effect beside {_S3}BUCKET")
        return bucket
    if named is not None:
        if named == "none":
            return None
        return environment.optional(_FOLDER, lambda raw: writable_folder(Path(raw)))
    # Several controllers share a database, but no folder.
    if environment.optional("FUMAROLE_CONTROLLER_STORE_URL", text) is not None:
        return None
    # Its own reader checks the state folder.
    state = environment.optional("FUMAROLE_CONTROLLER_STATE_FOLDER", Path)
    return None if state is None else state.absolute() / "logs"


def _read_bucket(environment: Environment) -> Bucket | None:
    name = environment.optional(f"{_S3}BUCKET", _bucket_name)
    bucket = Bucket(name=name or "", **environment.fields(Bucket))
    return bucket if name is not None else None
