"""Random damage to everything that parses what others send (``make fuzz SECONDS=60``).

::

    targets    what is fuzzed: a check of some bytes, which fails when a promise does not hold
    reading    independent, strict readers that say what an app or a browser would understand
    mutation   changes known inputs; an input that behaves in a new way is kept and changed on
    corpus     one file a target, one line a case: every crash ever found, replayed by the tests
"""
