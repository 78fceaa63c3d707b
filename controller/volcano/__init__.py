"""The VolcanoJob: how it is made, what it may not be, and what is read from one. No I/O.

- ``quantity``: amounts of processors and memory.
- ``manifest``: the parts of a VolcanoJob as typed objects that plugins change, and its JSON.
- ``preflight``: the rules of Volcano's CRD and webhooks, and of Kubernetes, that it could break.
- ``phases``: Volcano's phases and what they mean for a job.
- ``observed``: what is read from VolcanoJobs and pods.
- ``names``: names and labels of everything that is made for a job.
"""
