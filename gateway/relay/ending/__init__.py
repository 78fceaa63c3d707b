"""The end of a connection: every way to close one, in one place.

- :mod:`.closer` is the interface for the rest of the gateway. It closes, resets, defers aborts (the
  ends of many connections are spread over time), and watches for peers that leave or stall.
- :mod:`.lingering` is the protocol of a connection whose last byte was written (lingering close).
- :mod:`.stalls` resets connections whose peer acknowledges nothing; a sweep finds them.
- :mod:`.hangups` reports a FIN or a reset while reading is paused.
- :mod:`.kernel` reads the kernel's state of a connection and sets keep-alive.
"""
