"""Tests pod logs as kubelets return them, and kubelets' messages in place of a log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from controller.kube.errors import Invalid, KubeError, NotFound, Unavailable
from controller.logs.live import PodLogs, PodName
from controller.logs.reading import LogReader
from controller.logs.records import text_of
from controller.store.database import Store
from tests.controller.kube.api_server import Answer, Script, serving

POD = PodName("jobs", "j-j1-job-0", "u1", "j1")
LINE = "2026-11-22T15:38:42.123456789+01:00 said\n"
GONE = "unable to retrieve container logs for containerd://61a93aa17bfb193bc125b151ec643c85"
NO_FILE = (
    'failed to try resolving symlinks in path "/var/log/pods/jobs_j-j1-job-0_u1/job/0.log":'
    " lstat /var/log/pods/jobs_j-j1-job-0_u1/job/0.log: no such file or directory"
)
NO_WATCHER = "failed to create fsnotify watcher: too many open files"


def kubelet(log: str, *, phase: str = "Succeeded", status: int = 200) -> Answer:
    """Respond with *log* in a 200, or as its refusal, and with an existing pod."""
    pod: dict[str, Any] = {"metadata": {"name": POD.name, "uid": POD.uid}}

    async def answer(request: web.Request) -> web.Response:
        if request.path.endswith("/log") and status != 200:
            said = {"kind": "Status", "message": log, "reason": "BadRequest", "code": status}
            return web.json_response(said, status=status)
        if request.path.endswith("/log"):
            return web.Response(text=log, content_type="text/plain")
        listed = {"items": [pod | {"status": {"phase": phase}}], "metadata": {}}
        return web.json_response(listed)

    return answer


async def read(folder: Path, log: str, *, follow: bool) -> bytes:
    async with serving(Script(kubelet(log)), folder) as kube:
        blocks = PodLogs(kube).records(POD, None, follow=follow)
        return text_of(b"".join([block async for block in blocks]))


@pytest.mark.parametrize("follow", [False, True])
@pytest.mark.parametrize("said", [GONE, NO_FILE])
@pytest.mark.parametrize("before", ["", LINE])
async def test_a_kubelet_error_is_not_stored_as_log(
    follow: bool, said: str, before: str, tmp_path: Path
) -> None:
    with pytest.raises(NotFound) as caught:
        await read(tmp_path, before + said, follow=follow)
    assert str(caught.value) == said


@pytest.mark.parametrize("follow", [False, True])
@pytest.mark.parametrize(
    ("said", "error"),
    [(GONE, NotFound), (NO_FILE, NotFound), (NO_WATCHER, Unavailable),
     # After a restart of the node (ContainerStatusUnknown), every kubelet refuses it so.
     ('container "job" in pod "j-j1-job-0" is terminated', NotFound),
     # Its pod has no status of its containers yet.
     ('container "job" in pod "j-j1-job-0" is not available', Invalid),
     ('container "job" in pod "j-j1-job-0" is waiting to start: ContainerCreating', Invalid)],
)  # fmt: skip
async def test_a_log_that_a_kubelet_refuses_is_gone_or_has_not_begun(
    follow: bool, said: str, error: type[KubeError], tmp_path: Path
) -> None:
    # Older kubelets write the same words into a 200.
    refusing = kubelet(said, status=400)
    async with serving(Script(refusing), tmp_path) as kube:
        with pytest.raises(error) as caught:
            async for _ in PodLogs(kube).records(POD, None, follow=follow, again=False):
                pass
    assert (type(caught.value), str(caught.value)) == (error, said)


@pytest.mark.parametrize("follow", [False, True])
async def test_a_kubelet_follow_error_ends_a_complete_log(follow: bool, tmp_path: Path) -> None:
    assert await read(tmp_path, LINE + NO_WATCHER, follow=follow) == b"said\n"


async def text(folder: Path, store: Store, log: str) -> bytes:
    """Return the API's text of a log that is not stored."""
    async with (
        serving(Script(kubelet(log, phase="Running")), folder) as kube,
        LogReader(store, PodLogs(kube), None).text(POD) as shown,
    ):
        return b"".join([piece async for piece in shown.pieces])


async def test_a_log_contains_no_kubelet_message(tmp_path: Path, store: Store) -> None:
    assert await text(tmp_path, store, LINE + NO_WATCHER) == b"said\n"
    assert await text(tmp_path, store, "") == b""
    # The log may begin before the kubelet notices: then it breaks off.
    for log in (GONE, LINE + GONE):
        with pytest.raises(NotFound):
            await text(tmp_path, store, log)


@pytest.mark.parametrize("said", [GONE, NO_FILE, NO_WATCHER])
async def test_a_program_may_print_the_text_of_a_kubelet_error(said: str, tmp_path: Path) -> None:
    for line in (f"{LINE[:36]}{said}", f"{LINE[:36]}{said}\n"):
        assert await read(tmp_path, line, follow=False) == line[36:].encode()
