"""What the smoke run says when something is not as it must be."""


class SmokeFailed(Exception):
    """A step did not do what it must; the message says which, and holds no token."""
