"""Why a VolcanoJob was refused or waits, read from what the cluster says of it. No I/O.

- ``denials``: refused by the API server. ``waiting``: accepted, and not running; whether any node
  could take it. ``causes``: the causes that a cluster's words name.
"""
