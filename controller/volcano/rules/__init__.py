"""What Volcano and Kubernetes take, told before the cluster is asked. No I/O.

- ``preflight``: the rules of Volcano's CRD and webhooks, and of Kubernetes, that a job could break,
  among them what a NUMA policy asks of a task's containers.
- ``capabilities``: what the cluster's own Volcano takes. ``frameworks``: its plugins for those.
"""
