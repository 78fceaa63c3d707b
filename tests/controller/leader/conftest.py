"""Fixtures of the leader tests."""

from __future__ import annotations

import pytest

from controller.leader import election


@pytest.fixture
def fast_renewal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have elections renew the Lease a hundred times a second."""
    monkeypatch.setattr(election, "RENEW_SECONDS", 0.01)
