"""Fuzzes every parser of foreign input with random damage (``make fuzz SECONDS=60``).

- ``http``, ``streams``, ``values``: the promises, each a check of some bytes that fails when the
  promise does not hold
- ``targets``: what is fuzzed: a check, and the inputs with which the changes begin
- ``reading``: independent, strict readers that show what an app or a browser would understand
- ``mutation``: changes known inputs, and keeps inputs that behave in a new way for more changes
- ``pages``: the same for the pages: a Chromium, a gateway, a hub and a desktop of ours
- ``corpus``: one file a target, one line a case: every crash ever found, replayed by the tests
"""
