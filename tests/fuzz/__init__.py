"""Random damage to everything that parses what others send (``make fuzz SECONDS=60``).

::

    http, streams, values
               what is promised: a check of some bytes, which fails when it does not hold
    targets    what is fuzzed: such a check, and where the changes begin
    reading    independent, strict readers that say what an app or a browser would understand
    mutation   changes known inputs; an input that behaves in a new way is kept and changed on
    pages      the same promises of the pages: a Chromium, a gateway, a hub and a desktop of ours
    corpus     one file a target, one line a case: every crash ever found, replayed by the tests
"""
