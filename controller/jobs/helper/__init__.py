"""The name by which plugins of others import ``pipeline.helper_container``."""

from controller.jobs.pipeline.helper_container import *  # noqa: F403 - all of it, under its published name
