"""The old import path of ``spec.model``, for plugins of 0.1; removed in 0.3."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controller.plugin_api.old_paths import forwarded

if TYPE_CHECKING:
    from controller.jobs.spec.model import *  # noqa: F403 - all of it, under its old name
else:
    __getattr__ = forwarded(__name__, "controller.jobs.spec.model")
