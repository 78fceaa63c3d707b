"""Tests the client library's import: unused modules are left out, plugins still get them."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def run(program: str) -> str:
    """Run *program* in a fresh Python process; return its output."""
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(program)]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


def test_a_controller_imports_no_model_and_no_api_of_the_library() -> None:
    loaded = run(
        """
        import sys
        import controller.__main__
        print(*(name for name in sys.modules if name.startswith("kubernetes_asyncio")))
        """
    ).split()
    assert "kubernetes_asyncio.client.rest" in loaded
    assert not [one for one in loaded if ".client.models." in one or ".client.api." in one]


@pytest.mark.parametrize("first", ["", "import kubernetes_asyncio.client"])
def test_a_plugin_can_use_the_whole_library(first: str) -> None:
    printed = run(
        f"""
        {first}
        import controller.kube.library as ours
        from types import SimpleNamespace

        import kubernetes_asyncio
        from kubernetes_asyncio import client, config, watch
        from kubernetes_asyncio.client import ApiClient, CoreV1Api, V1ObjectMeta, V1Pod

        assert (ApiClient, client.Configuration) == (ours.ApiClient, ours.Configuration)
        assert config.load_kube_config is ours.load_kube_config
        assert watch.Watch and CoreV1Api and kubernetes_asyncio.__version__
        assert client.models.V1Pod is V1Pod
        assert not hasattr(client, "V9Pod") and not hasattr(client, "__wrapped__")
        with_models = object.__new__(ApiClient)
        with_models.configuration = ours.Configuration()
        answer = SimpleNamespace(data='{{"metadata": {{"name": "p"}}}}')
        read = with_models.deserialize(answer, "V1Pod")
        assert read == V1Pod(metadata=V1ObjectMeta(name="p"))
        print(read.metadata.name)
        """
    )
    assert printed == "p\n"


def test_lazy_imports_are_thread_safe() -> None:
    run(
        """
        import controller.kube.library
        from concurrent.futures import ThreadPoolExecutor
        from kubernetes_asyncio import client

        with ThreadPoolExecutor(8) as threads:
            found = list(threads.map(lambda _: client.V1Pod, range(8)))
        assert len(set(found)) == 1
        """
    )
