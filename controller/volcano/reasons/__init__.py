"""Why a VolcanoJob was refused or waits, by the messages of the cluster. No I/O.

- ``denials``: refusals of the API server.
- ``waiting``: accepted VolcanoJobs that do not run; whether any node could fit them.
- ``causes``: the causes that messages of the cluster name.
"""
