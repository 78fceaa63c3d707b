"""JobManagement: the job model, the plugins, and the life of a job from acceptance to removal.

A job passes these packages from the top down; each imports only those below it:

- ``reconcile``: compares store and cluster, decides one step for a job, does it, and repeats.
- ``submission``: accepts jobs into the store; later commands (end, suspend, more time).
- ``tools``: programs attached to a job; each runs as a job that no list shows.
- ``cluster``: the informer's cache, and the objects that are created for a job.
- ``usage``: the ledger of what a job has used.
- ``pipeline``: the plugin interface, the builder, and the border around every hook.
- ``history``: the state machine, and the records of attempts and pods.
- ``spec``: the job as requested and as accepted, and its validation. No I/O but the store's.

``containment`` keeps an error of one job from stopping other jobs. ``builder``, ``helper``,
``model``, ``plugin`` and ``problems`` are the names by which older third-party plugins import these
modules.

Flow: submission → store → reconcile: observe → lifecycle → actions → cluster → informer → again.
Sources: the Kubernetes documentation on controllers, client-go's informers and work queues.
"""
