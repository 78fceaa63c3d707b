"""Compares the gateway with its peers: the same work and the same responses, in one run.

``make bench`` (or ``python -m benchmarks``) goes through these steps::

    install   fetches the peers from the package registries into .bench; skips the unavailable
    native    compiles load and backend, which must cost much less than what they measure
    ground    starts backend, Redis and every proxy: proxies on one core, the rest on the other
    plan      says what is measured: works, growth, memory, latency; a round takes each proxy once
    measure   reads CPU and memory from /proc, and has the arithmetic
    report    writes docs/benchmarks.md, results.json and the plots

Each peer is one file in ``peers``, with its configuration beside it.
"""
