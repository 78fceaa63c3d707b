"""The end of a connection: every way to it, in one place.

- :mod:`.ends` is what the rest of the gateway is given: it closes, lingers, resets later (the ends
  of many connections are spread over time), and watches for peers that left or that take nothing.
- :mod:`.lingering` is the protocol of a connection whose last byte has been written.
- :mod:`.stalls` resets connections whose peer acknowledges nothing of what waits for it; all are
  asked now and then whether the kernel holds something for them.
- :mod:`.hangups` sees a FIN or a reset while reading is paused.
- :mod:`.kernel` asks the kernel what it holds of a connection, and has it find peers that vanished.
"""
