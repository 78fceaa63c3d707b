"""Interactive sessions: one opening of one endpoint of one rank of a job.

- ``opening``: what a session is made of, and whether it may be opened.
- ``routes``: the routes that should be, from sessions, jobs, pods and hubs (no I/O).
- ``desired``: reads those four and keeps what should be published.
- ``publisher``: keeps Redis as it should be, one difference at a time.
- ``terminals``: what a terminal hub needs to know of its sessions.

Nothing here is told what happened: routes are computed from what is, and compared with what was
published.
"""
