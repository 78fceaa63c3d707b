"""The name by which plugins of others import ``pipeline.plugin``."""

from controller.jobs.pipeline.plugin import *  # noqa: F403 - all of it, under its published name
