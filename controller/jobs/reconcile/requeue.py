"""What the steps of ``lifecycle`` have in common when they are done."""

from __future__ import annotations

from shared.errors import FumaroleError


class RequeueAfter(FumaroleError):
    """The step cannot be done yet, and that is no failure: look again after ``seconds``."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"look again in {seconds} s")
        self.seconds = seconds
