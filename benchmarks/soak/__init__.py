"""A soak of the gateway: ``make soak HOURS=24``, or ``python -m benchmarks.soak``.

A gateway of several workers, with a Redis of its own, serves thousands of lasting WebSockets.
Meanwhile sockets and requests come and go, grants are revoked, routes move and end, and workers are
killed. The parts::

    plan      the amounts and intervals, and the descriptors that they need
    apps      a process with the apps; every response names its app
    sessions  the expected state of each session, and so the right response
    sockets   the WebSockets of one process: opens, uses and closes them, checks each end
    requests  GETs; checks each response
    changes   revocations, moved and ended routes, killed workers
    sampling  memory, descriptors, threads, tasks and processor time, from /proc and /metrics
    record    the results, written as JSON during the run
    slopes    least squares with a confidence interval
    page      docs/soak.md and its plot, from the JSON
"""
