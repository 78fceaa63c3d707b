"""Provides the seeds of the test clusters' lags; a test's name, and so its failure, shows it."""

from __future__ import annotations

import pytest

LAG_SEEDS = [
    pytest.param(1, id="lags-of-seed-1"),
    pytest.param(2, id="lags-of-seed-2", marks=pytest.mark.long),
]
