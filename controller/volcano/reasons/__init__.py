"""Why a VolcanoJob was refused or waits, by what the cluster says. No I/O.

- ``denials``: refused by the API server.
- ``waiting``: accepted, and not running; whether any node could fit it.
- ``causes``: the causes that messages of the cluster name.
"""
