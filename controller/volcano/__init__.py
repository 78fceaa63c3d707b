"""The VolcanoJob: how it is made, what it may not be, and what is read from one. No I/O.

- ``names``: names and labels of everything that is made for a job.
- ``manifest``: the parts of a VolcanoJob as typed objects that plugins change, its amounts of
  processors and memory, and its JSON. ``policies``: Volcano's phases and retry policies, what they
  mean for a job, and their arithmetic.
- ``preflight``: what Volcano and Kubernetes take; ``frameworks``: Volcano's plugins for those.
  ``reasons``: why they refused it, or it waits.
- ``observed``: what is read from VolcanoJobs, pods and Services; ``fields``: all that is kept of
  them.
"""
