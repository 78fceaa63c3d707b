"""The images that jobs may use: the operator's list, compared with an image as nodes read it.

An image is parsed as containerd and Docker do (the grammar of distribution/reference). Without a
registry it belongs to ``docker.io``; a single word there is below ``library/``; without tag and
digest it has the tag ``latest``. An image that cannot be parsed is never allowed.

A tag beside a digest has no effect, since nodes pull by the digest alone. So a pattern with a tag
allows no image with a digest, unless the pattern itself has that digest.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from controller.jobs.spec.model import Job
from controller.jobs.spec.problems import Problem

DEFAULT_REGISTRY: Final = "docker.io"
DEFAULT_TAG: Final = "latest"
LONGEST_NAME: Final = 255

_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_REGISTRY: Final = re.compile(rf"{_LABEL}(?:\.{_LABEL})*(?::[0-9]{{1,5}})?", re.ASCII)
_REPOSITORY: Final = re.compile(
    r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*", re.ASCII
)
_TAG: Final = re.compile(r"[A-Za-z0-9_][-.A-Za-z0-9_]{0,127}", re.ASCII)
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}|sha384:[0-9a-f]{96}|sha512:[0-9a-f]{128}")

_PATTERN_REPOSITORY: Final = re.compile(r"[a-z0-9._*-]+(?:/[a-z0-9._*-]+)*", re.ASCII)
_PATTERN_TAG: Final = re.compile(r"[-.A-Za-z0-9_*]{1,128}", re.ASCII)
_ANY_DIGEST: Final = "*"


@dataclass(frozen=True, slots=True)
class ImageReference:
    """A complete image reference. ``tag`` is None if there is only a digest."""

    registry: str
    repository: str
    tag: str | None
    digest: str | None


def read_image(image: str) -> ImageReference:
    """Return *image* as a node reads it.

    Raises:
        ValueError: If it is not an image reference.
    """
    rest, at, digest = image.partition("@")
    if at and not _DIGEST.fullmatch(digest):
        raise ValueError("its digest is malformed")
    name, colon, tag = rest.rpartition(":")
    if not colon or "/" in tag:  # the colon belongs to a port
        name, tag = rest, ""
    elif not _TAG.fullmatch(tag):
        raise ValueError("its tag is malformed")
    registry, repository = _split_registry(name)
    if not _REGISTRY.fullmatch(registry) or not _REPOSITORY.fullmatch(repository):
        raise ValueError("it is not an image reference")
    if len(registry) + 1 + len(repository) > LONGEST_NAME:
        raise ValueError("its name is too long")
    return ImageReference(
        registry, repository, tag or (None if at else DEFAULT_TAG), digest if at else None
    )


def _split_registry(name: str) -> tuple[str, str]:
    first, slash, rest = name.partition("/")
    named = slash and ("." in first or ":" in first or first == "localhost" or not _lower(first))
    registry, repository = (first.lower(), rest) if named else (DEFAULT_REGISTRY, name)
    if registry == "index.docker.io":
        registry = DEFAULT_REGISTRY
    if registry == DEFAULT_REGISTRY and "/" not in repository:
        repository = f"library/{repository}"
    return registry, repository


def _lower(text: str) -> bool:
    return text == text.lower()


@dataclass(frozen=True, slots=True)
class ImagePattern:
    """One entry of the operator's list; ``tag`` and ``digest`` are None if it has none."""

    registry: str
    repository: re.Pattern[str]
    tag: re.Pattern[str] | None
    digest: str | None

    def allows(self, image: ImageReference) -> bool:
        """Return whether *image* matches the entry."""
        if image.registry != self.registry or not self.repository.fullmatch(image.repository):
            return False
        if self.digest is not None:
            if image.digest is None or self.digest not in (_ANY_DIGEST, image.digest):
                return False
        elif self.tag is not None and image.digest is not None:
            return False
        return self.tag is None or (image.tag is not None and bool(self.tag.fullmatch(image.tag)))


@dataclass(frozen=True, slots=True)
class AllowedImages:
    """The operator's list."""

    patterns: tuple[ImagePattern, ...]

    def problems(self, job: Job) -> Iterator[Problem]:
        """Yield the problems of the images that *job* names, each with its path."""
        named = [("image", job.image)]
        named += [(f"tasks[{index}].image", task.image) for index, task in enumerate(job.tasks)]
        for path, image in named:
            why = self._why_not(image) if image is not None else None
            if why is not None:
                yield Problem(path, why)

    def _why_not(self, image: str) -> str | None:
        try:
            reference = read_image(image)
        except ValueError as error:
            return f"cannot be compared with the images that jobs may use: {error}"
        if any(pattern.allows(reference) for pattern in self.patterns):
            return None
        return "is not one of the images that jobs may use"


def parse_images(raw: str) -> AllowedImages:
    """Return the patterns of a list separated by commas or white space; ``none`` allows no image.

    Raises:
        ValueError: For a malformed or ambiguous pattern.
    """
    if raw.strip().lower() == "none":
        return AllowedImages(())
    return AllowedImages(tuple(_pattern(one) for one in re.split(r"[,\s]+", raw.strip()) if one))


def _pattern(text: str) -> ImagePattern:
    rest, at, digest = text.partition("@")
    if at and digest != _ANY_DIGEST and not _DIGEST.fullmatch(digest):
        raise ValueError(f"{text}: the digest is neither * nor sha256:<64 hexadecimal digits>")
    registry, slash, rest = rest.partition("/")
    repository, colon, tag = rest.partition(":")
    if not slash or not ("." in registry or ":" in registry or registry == "localhost"):
        raise ValueError(f"{text}: the registry must be named, as in docker.io/library/busybox")
    if not _REGISTRY.fullmatch(registry):
        raise ValueError(f"{text}: the registry must be a host name without *")
    if colon and not _PATTERN_TAG.fullmatch(tag):
        raise ValueError(f"{text}: the tag is malformed")
    registry = registry.lower()
    short = registry == DEFAULT_REGISTRY and "/" not in repository and repository != "**"
    if short or registry == "index.docker.io":
        raise ValueError(f"{text}: write an image of Docker Hub as docker.io/library/<name>")
    return ImagePattern(
        registry,
        _repository_pattern(text, repository),
        _with_stars(tag, "") if colon else None,
        digest if at else None,
    )


def _repository_pattern(text: str, repository: str) -> re.Pattern[str]:
    if not _PATTERN_REPOSITORY.fullmatch(repository):
        raise ValueError(f"{text}: the repository is malformed")
    folders, _, last = repository.rpartition("/")
    below = last == "**"
    stars = folders if below else repository
    if "**" in stars:
        raise ValueError(f"{text}: ** must be the last part of a repository")
    if not below:
        return _with_stars(repository, "/")
    prefix = f"{_with_stars(folders, '/').pattern}/" if folders else ""
    return re.compile(f"{prefix}.+")


def _with_stars(pattern: str, excluded: str) -> re.Pattern[str]:
    """Return a regular expression in which ``*`` matches any text without *excluded*."""
    star = f"[^{excluded}]*" if excluded else ".*"
    return re.compile(star.join(map(re.escape, re.sub(r"\*+", "*", pattern).split("*"))))
