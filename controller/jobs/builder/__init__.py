"""The name by which plugins of others import ``pipeline.builder``."""

from controller.jobs.pipeline.builder import *  # noqa: F403 - all of it, under its published name
