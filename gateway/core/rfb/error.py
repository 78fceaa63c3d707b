"""The one error of RFB."""

from __future__ import annotations


class RfbError(Exception):
    """What came is not what may come; the message is for people and holds nothing of it."""
