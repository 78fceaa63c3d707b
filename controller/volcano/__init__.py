"""The VolcanoJob: how it is built, checked and read. No I/O.

- ``names``: names and labels of everything that is created for a job.
- ``manifest``: a VolcanoJob as typed objects that plugins change, and its JSON. ``quantities``:
  exact amounts of resources. ``policies``: retry policies.
- ``preflight``: what Volcano and Kubernetes accept; ``frameworks``: Volcano's plugins for
  frameworks. ``reasons``: why a VolcanoJob was refused, or waits.
- ``observed``: VolcanoJobs, pods and Services as observed, and the meaning of phases. ``parsing``
  reads them from JSON; ``fields``: the fields that are decoded.
"""
