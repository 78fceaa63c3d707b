"""Fixtures of the tests of the Kubernetes manifests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.deploy.kubernetes.manifests import BUILT, Object, build


@pytest.fixture(params=BUILT)
def objects(request: pytest.FixtureRequest, tmp_path: Path) -> list[Object]:
    return build(request.param, tmp_path)
