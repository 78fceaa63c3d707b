"""The name by which plugins of others import ``spec.problems``."""

from controller.jobs.spec.problems import *  # noqa: F403 - all of it, under its published name
