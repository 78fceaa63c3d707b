"""The gateway beside its peers: the same work, the same answers, in one run.

``make bench`` (or ``python -m benchmarks``) goes through these steps::

    install   the peers, from the package registries, into .bench; what cannot be had is skipped
    native    load and backend are compiled: they must cost much less than what they measure
    ground    backend, Redis and every proxy are started: proxies on one core, the rest on the other
    plan      what is done: works, growth, memory, latency; rounds go over all proxies in turn
    measure   CPU from /proc, memory, and the arithmetic
    report    docs/benchmarks.md, results.json and the plots, written by the run that measured them

Each peer is one file in ``peers``, with its configuration beside it.
"""
