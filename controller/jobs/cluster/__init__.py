"""A job in the cluster: the cache of its objects, and every object that is created for it.

- ``informer``: the cache of VolcanoJobs, pods and Services, kept by watches (client-go's informer).
- ``prerequisites``: namespace, ServiceAccount, queue and shared objects, before a submission.
- ``job_objects``: creates and deletes VolcanoJobs, Commands and pods; ``companion_objects``:
  companions. Every call may be repeated.
- ``verdicts``: what a refusal of the API server means.
- ``pending_reasons``: why pods wait. ``priorities``: the values of PriorityClasses.
- ``companion_sweep``: deletes objects whose job is gone, and restores objects of running jobs that
  another client has deleted.
- ``mount_points``: deletes mount points that jobs leave in their output folders.

Sources: the Kubernetes API conventions; docs/controller.md.
"""
