"""The controller: runs an orchestrator's jobs as VolcanoJobs, and publishes their sessions.

- ``api``: the orchestrator's HTTP API; what it accepts is in the store before it responds.
- ``jobs``: spec, plugin pipeline, submission, reconcile, cluster cache, usage, history.
- ``plugins``: the parts that make a VolcanoJob from a job, one file each.
- ``volcano``: the VolcanoJob itself, its rules and phases (no I/O).
- ``kube``: the Kubernetes client, its error border, watches.
- ``sessions``: interactive sessions, and the publisher that keeps Redis up to date.
- ``explain``: why a session or a job cannot be used.
- ``webhooks``: updates of jobs for the deployment's receivers.
- ``hub``: the terminal hub, a role of its own.
- ``leader``: the election, and the tasks of the elected leader.
- ``site``: the operator's decisions: defaults, products, images, licence servers, shares.
- ``store``: the state that outlives a process, in SQL.

Flow: api → store → reconciler (compares store and cluster, per job) → cluster; watches and session
rows → routes → publisher → Redis.
"""
