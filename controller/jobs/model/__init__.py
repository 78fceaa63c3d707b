"""The name by which plugins of others import ``spec.model``."""

from controller.jobs.spec.model import *  # noqa: F403 - all of it, under its published name
