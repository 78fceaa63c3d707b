"""JobManagement: what a job may say, what plugins make of it, and how it lives and ends.

A job passes these packages from its acceptance to its removal; each imports only those below it:

- ``reconcile``: compares store and cluster, decides one step for a job, does it, and looks again.
- ``submission``: checks jobs and takes them into the store; later commands (end, pause, more time).
- ``tools``: programs that are attached to a job, each run as a job is that nobody lists.
- ``cluster``: the informer's cache, and what is made in and removed from the cluster for a job.
- ``usage``: what a job takes of the cluster, and the ledger of what it has used.
- ``pipeline``: the plugin interface, the builder, and the border around every hook.
- ``history``: the states as a table, and what is recorded of attempts and pods.
- ``spec``: the job as asked for and as accepted, validated. No I/O but the store's.

``containment`` keeps one job's trouble from all others. ``builder``, ``helper``, ``model``,
``plugin`` and ``problems`` are the names by which plugins of other packages import these modules.

Flow: submission → store → reconcile: observe → lifecycle → actions → cluster → informer → again.
Sources: the Kubernetes documentation on controllers, client-go's informers and work queues.
"""
