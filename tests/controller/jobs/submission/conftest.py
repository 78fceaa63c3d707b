"""Fixtures of the submission tests."""

from __future__ import annotations

import os

import pytest

from controller.jobs.spec.accepted import Vault
from controller.jobs.submission.accept import Submissions
from controller.store.database import Store
from tests.clock import Clock
from tests.controller.samples import make_defaults, make_pipeline


@pytest.fixture
def submissions(store: Store, clock: Clock) -> Submissions:
    return Submissions(
        store=store,
        pipeline=make_pipeline(),
        vault=Vault([os.urandom(32)]),
        defaults=make_defaults(),
        clock=clock,
        random=os.urandom,
        enqueue=lambda _job: None,
    )
