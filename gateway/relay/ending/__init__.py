"""The end of a connection: every way to close one, in one place.

- :mod:`.closer` is the interface for the rest of the gateway. It closes, resets, lingers after the
  last byte, defers aborts (the ends of many connections are spread over time), and watches for
  peers that leave or stall.
- :mod:`.stalls` resets connections whose peer acknowledges nothing; a sweep finds them.
"""
