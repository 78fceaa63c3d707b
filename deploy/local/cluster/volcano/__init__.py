"""Volcano's part: job controller, gang scheduler and webhooks, as one client of an API server.

At the start `definitions` and `webhook` are installed. Then `controller` gives each job turns:
`policies` says what an event calls for, `states` what an action or the counts of pods do to
the job, `pods` what objects it is made into. `scheduler` lets PodGroups in when their Queue is
open and the nodes have room, and binds all the pods that a group needs, or none. `admission`
holds the rules of the webhooks. All but `controller`, `scheduler` and `webhook` do no I/O.

Left out: the plugins other than ``svc``, ``env`` and ``pytorch`` (admitted, without effect),
claims made from ``volumeClaim``, partitions, network topology, preemption and reclaim,
hierarchical queues beyond their names, and fair sharing by weight. ``PodPending`` timeouts are
lost with the process, as in Volcano.
"""
