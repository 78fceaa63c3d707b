"""The cluster's side of a job: what watches show of it, and every object that is made for it.

- ``informer``: the cache of VolcanoJobs, pods and Services, kept by watches (client-go's informer).
- ``prerequisites``: namespace, ServiceAccount, queue and what else jobs share, before a submission.
- ``job_objects``: VolcanoJobs and companions, made and removed, safely twice.
- ``verdicts``: what the API server's refusals mean.
- ``pending_reasons``: why pods wait. ``orphans``: removal of what belongs to no job.
- ``mount_points``: removal of what jobs leave in their output folders.

Sources: the Kubernetes API conventions; docs/controller.md.
"""
