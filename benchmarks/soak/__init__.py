"""The gateway for hours: ``make soak HOURS=24``, or ``python -m benchmarks.soak``.

A gateway of several workers, with a Redis of its own, serves thousands of WebSockets that stay,
while sockets and requests come and go, grants are revoked, routes move and end, and workers are
killed. The parts::

    plan      how many of everything, how often, and the descriptors that this takes
    apps      a process with the apps, each of which says its name in every response
    sessions  what each session is at this moment, and so which response is the right one
    sockets   the WebSockets of one process: opened, used, closed, and each end judged
    requests  GETs, each response judged
    changes   revocations, moved and ended routes, killed workers
    sampling  memory, descriptors, threads, tasks and processor time, from /proc and /metrics
    record    what was found, written as JSON while it runs
    slopes    least squares with a confidence interval
    page      docs/soak.md and its plot, from the JSON
"""
