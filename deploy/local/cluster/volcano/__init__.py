"""Volcano's part: job controller, gang scheduler and webhooks, as one client of an API server.

- `definitions` and `webhook` are installed at the start; `admission` holds the webhook's rules.
- `controller` gives each job turns. `events` turns changes of pods into events, `policies` chooses
  the action for an event, and `states` decides the effect of an action, or of the counts of pods,
  on the job. `status` makes the job's status; `pods` and `plugins` make its objects.
- `queues` opens and closes Queues.
- `scheduler` admits PodGroups as their `shares` allow. It binds all the pods that a group needs if
  there are `rooms`, or none.

Left out: ``hcclrank`` (admitted, without effect), claims made from ``volumeClaim``, network and
NUMA topology, preemption and reclaim, priorities between groups, ``guarantee`` and ``deserved`` of
Queues, limits of parent Queues. Timeouts of policies are lost with the process, as in Volcano.
"""
