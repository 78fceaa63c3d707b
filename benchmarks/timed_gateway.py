"""``python -m benchmarks.timed_gateway``: the gateway, whose turns are timed in processor time.

``fumarole_gateway_turn_seconds`` then says what a connection took of the loop. In wall-clock time a
turn also lasts while another program has the processor: mostly 4 ms, however short the turn.
"""

from __future__ import annotations

import time
from typing import Any

from gateway.__main__ import main
from gateway.relay.turns import Turns


def time_turns_by_processor() -> None:
    """Let every :class:`Turns` made from now on read the clock of its thread."""
    made: Any = Turns.__init__
    made.__kwdefaults__["clock"] = time.thread_time


if __name__ == "__main__":
    time_turns_by_processor()
    main()
