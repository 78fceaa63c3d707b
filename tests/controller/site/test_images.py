"""Tests the list of allowed images: how patterns match, and how a node reads an image."""

from __future__ import annotations

import contextlib
import os
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.jobs.spec.accepted import Vault
from controller.jobs.spec.model import Job
from controller.jobs.submission.accept import Submissions
from controller.settings import read_settings
from controller.site.images import AllowedImages, ImageReference, parse_images, read_image
from controller.site.job_defaults import JobDefaults
from controller.store.database import Store
from controller.store.instance import ensure_position
from shared.settings import Environment
from tests.controller.samples import make_defaults, make_job, make_pipeline

A, B = "sha256:" + "a" * 64, "sha256:" + "b" * 64
VAULT = Vault([os.urandom(32)])


def allows(patterns: str, image: str) -> bool:
    return not list(parse_images(patterns).problems(make_job(image=image)))


@pytest.mark.parametrize(
    ("image", "read"),
    [
        ("busybox", ("docker.io", "library/busybox", "latest", None)),
        ("busybox:1.36", ("docker.io", "library/busybox", "1.36", None)),
        ("jupyter/base", ("docker.io", "jupyter/base", "latest", None)),
        ("docker.io/busybox", ("docker.io", "library/busybox", "latest", None)),
        ("index.docker.io/busybox", ("docker.io", "library/busybox", "latest", None)),
        ("Docker.IO/busybox", ("docker.io", "library/busybox", "latest", None)),
        ("docker.io:443/busybox", ("docker.io:443", "busybox", "latest", None)),
        ("localhost/x", ("localhost", "x", "latest", None)),
        ("localhost:5000/x:1", ("localhost:5000", "x", "1", None)),
        ("host:5000", ("docker.io", "library/host", "5000", None)),
        ("host/x", ("docker.io", "host/x", "latest", None)),
        ("Host/x", ("host", "x", "latest", None)),
        ("quay.io/a/b/c:v1@" + A, ("quay.io", "a/b/c", "v1", A)),
        ("quay.io/a@" + A, ("quay.io", "a", None, A)),
        ("10.0.0.1/a", ("10.0.0.1", "a", "latest", None)),
    ],
)
def test_an_image_reference_is_parsed_as_by_a_node(
    image: str, read: tuple[str, str, str | None, str | None]
) -> None:
    assert read_image(image) == ImageReference(*read)


@pytest.mark.parametrize(
    "image",
    ["", "a:", "a@", "a@sha256:abc", "a@" + A.upper(), "a@md5:" + "a" * 32, "quay.io/", "quay.io/A",
     "quay.io//a", "quay.io/a/", "quay.io/../a", "quay.io/a/..", "quay.io/.a", "quay.io/a b",
     "https://quay.io/a", "quay.io/a:b:c", "quay.io:port/a", "-quay.io/a", "quay.io./a",
     "quay.io/a@" + A + "@" + A, "a:" + "t" * 129, "quay.io/" + "a" * 250, "quay.io/a\n",
     "quay.io/\u0430"],
)  # fmt: skip
def test_a_malformed_image_reference_is_never_allowed(image: str) -> None:
    with pytest.raises(ValueError, match=r"it"):
        read_image(image)


# ``@A`` and ``@B`` stand for digests here.
MEANINGS = [
    (
        "quay.io/jupyter/base",
        "quay.io/jupyter/base quay.io/jupyter/base:x QUAY.io/jupyter/base quay.io/jupyter/base@A",
        "quay.io/jupyter/base2 quay.io/jupyter quay.io/jupyter/base/x jupyter/base quay.io "
        "quay.io.evil.example/jupyter/base evil.example/quay.io/jupyter/base "
        "quay.io:443/jupyter/base",
    ),
    ("quay.io/jup/*", "quay.io/jup/x", "quay.io/jup/x/y quay.io/jupx/x quay.io/jup"),
    ("quay.io/jup/**", "quay.io/jup/x/y:1 quay.io/jup/x", "quay.io/jup quay.io/jupx/y"),
    ("quay.io/**", "quay.io/a quay.io/a/b", "busybox quay.io.evil.example/a"),
    ("quay.io/*/base-*", "quay.io/a/base-x", "quay.io/a/b/base-x quay.io/a/base"),
    (
        "docker.io/library/*",
        "busybox docker.io/busybox:1",
        "ada/busybox localhost/busybox docker.io/ada/busybox",
    ),
    ("docker.io/**", "busybox ada/x", "docker.io:443/x quay.io/x"),
    ("localhost:5000/x", "localhost:5000/x", "localhost/x localhost:5001/x"),
    ("quay.io/a:1.2", "quay.io/a:1.2", "quay.io/a quay.io/a:1.20 quay.io/a:1x2 quay.io/a:1.2@A"),
    ("quay.io/a:1.*", "quay.io/a:1.2", "quay.io/a:12 quay.io/a:latest quay.io/a@A"),
    ("quay.io/a:latest", "quay.io/a", "quay.io/a@A"),
    ("quay.io/a@A", "quay.io/a@A quay.io/a:any@A", "quay.io/a quay.io/a@B"),
    ("quay.io/a:1@A", "quay.io/a:1@A", "quay.io/a@A quay.io/a:2@A"),
    ("quay.io/a@*", "quay.io/a@A quay.io/a:1@B", "quay.io/a quay.io/a:1"),
    ("quay.io/a, quay.io/b\nquay.io/c", "quay.io/a quay.io/b quay.io/c", "quay.io/d"),
    ("none", "", "quay.io/a none busybox"),
]


@pytest.mark.parametrize(("pattern", "allowed", "refused"), MEANINGS)
def test_a_pattern_matches_exactly_its_images(pattern: str, allowed: str, refused: str) -> None:
    def full(text: str) -> str:
        return text.replace("@A", f"@{A}").replace("@B", f"@{B}")

    images = f"{allowed} {refused}".split()
    judged = {image: allows(full(pattern), full(image)) for image in images}
    assert [image for image, good in judged.items() if good] == allowed.split()


@pytest.mark.parametrize(
    "pattern",
    ["busybox", "jupyter/base", "*", "*/a", "**", "*.io/a", "quay.*/a", "quay.io", "quay.io/",
     "quay.io/A", "docker.io/busybox", "docker.io/*", "index.docker.io/library/x", "quay.io/**/a",
     "quay.io/a**", "quay.io/a:", "quay.io/a@", "quay.io/a@sha256:abc", "quay.io/a:b:c",
     "quay.io/a@sha256:*", "https://quay.io/a", "quay.io/a?", "quay.io/[a]"],
)  # fmt: skip
def test_an_ambiguous_pattern_is_refused_at_start(pattern: str) -> None:
    environment = Environment({"FUMAROLE_CONTROLLER_IMAGES": f"quay.io/good {pattern}"})
    read_settings(environment)
    (problem,) = [one for one in environment.problems if "_IMAGES" in one]
    assert pattern in problem


@given(st.text(alphabet="ab/.:@*-_A0", max_size=40))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    for read in (read_image, parse_images):
        with contextlib.suppress(ValueError):
            read(text)


@given(st.text(alphabet="abq./:@-_A0", min_size=1, max_size=30))
def test_no_image_of_another_registry_is_allowed(text: str) -> None:
    try:
        reference = read_image(text)
    except ValueError:
        return
    (pattern,) = parse_images("quay.io/**").patterns
    assert pattern.allows(reference) is (reference.registry == "quay.io")


# Where the list applies


async def submit(store: Store, *jobs: Job, defaults: JobDefaults) -> list[str]:
    submissions = Submissions(
        store=store, pipeline=make_pipeline(), vault=VAULT, defaults=defaults, clock=time.time,
        random=os.urandom, enqueue=lambda _job: None,
    )  # fmt: skip
    reported: list[str] = []
    for one in await submissions.submit(jobs, "best_effort"):
        reported.append(one.result)
        reported += [str(problem) for problem in one.problems]
    return reported


async def test_every_image_of_a_job_is_checked(store: Store) -> None:
    async with store.write() as transaction:
        await ensure_position(transaction, new_identity="test")
    defaults = make_defaults(FUMAROLE_CONTROLLER_IMAGES="quay.io/good/**")
    tasks = [
        {"name": "a", "image": "quay.io/good/x"},
        {"name": "b", "image": "quay.io/bad/x"},
        {"name": "c"},
    ]
    job = make_job(tasks=tasks, image="busybox", priority="nobodys")
    result, *problems = await submit(store, job, defaults=defaults)
    assert result == "rejected"
    why = "is not one of the images that jobs may use"
    # Together with the job's other problems.
    assert problems[:2] == [f"image: {why}", f"tasks[1].image: {why}"]
    assert any("priority" in one for one in problems[2:])
    assert await submit(store, make_job(image="quay.io/good/y"), defaults=defaults) == ["created"]


async def test_an_accepted_job_stays_accepted_when_the_list_changes(store: Store) -> None:
    async with store.write() as transaction:
        await ensure_position(transaction, new_identity="test")
    job = make_job(image="quay.io/old/x")
    assert await submit(store, job, defaults=make_defaults()) == ["created"]
    changed = make_defaults(FUMAROLE_CONTROLLER_IMAGES="quay.io/new/**")
    assert await submit(store, job, defaults=changed) == ["unchanged"]
    (again, *_) = await submit(store, make_job(id="j2", image="quay.io/old/x"), defaults=changed)
    assert again == "rejected"


def test_without_a_list_any_image_is_allowed() -> None:
    assert make_defaults().images is None
    assert make_defaults(FUMAROLE_CONTROLLER_IMAGES="none").images == AllowedImages(())
