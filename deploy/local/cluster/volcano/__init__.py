"""Volcano's part: job controller, gang scheduler and webhooks, as one client of an API server.

At the start `definitions` and `webhook` are installed. Then `controller` gives each job turns:
`events` tells what befalls pods, `policies` what that calls for, `states` what an action or the
counts of pods do to the job, `status` what it says of it, `pods` and `plugins` what objects it
is made into. `queues` open and close. `scheduler` lets PodGroups in as their `shares` allow, and
binds all the pods that a group needs where there are `rooms`, or none. `admission` holds the
rules of the webhooks.

Left out: ``hcclrank`` (admitted, without effect), claims made from ``volumeClaim``, network and
NUMA topology, preemption and reclaim, priorities between groups, ``guarantee`` and ``deserved`` of
Queues, limits of parent Queues. Timeouts of policies are lost with the process, as in Volcano.
"""
