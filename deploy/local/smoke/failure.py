"""The error of the smoke run."""


class SmokeFailed(Exception):
    """A step failed. The message names the step, and holds no token."""
