"""The controller: turns an orchestrator's jobs into Volcano jobs and publishes their sessions.

- ``api``: the orchestrator-facing HTTP API; what it accepts is in the store before it answers.
- ``jobs``: spec, plugin pipeline, submission, reconcile, cluster cache, usage, history.
- ``plugins``: what makes a VolcanoJob of a job, one file each.
- ``volcano``: the VolcanoJob itself, its rules and phases (no I/O).
- ``kube``: the Kubernetes client, its error border, watches.
- ``sessions``: interactive sessions, and the publisher that keeps Redis as it should be.
- ``explain``: why a session or a job cannot be used.
- ``webhooks``: what becomes of jobs, sent to receivers that the deployment names.
- ``hub``: the terminal hub, a role of its own.
- ``leader``: the election, and the loops of the elected leader.
- ``site``: what operators offer and allow: products, images, licence servers, shares.
- ``store``: what must outlive a process, in SQL. ``plain``: others' text, made fit to store.

Flow: api → store → reconciler (store and cluster compared, per job) → cluster; watches and
session rows → routes → publisher → Redis.
"""
