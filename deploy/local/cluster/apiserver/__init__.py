"""A Kubernetes API server for a table of kinds, from memory.

A request passes through these steps. Each except the last two decides without I/O:

1. `app` handles the request: `access` identifies the user and checks the rights, `requests` reads
   the path;
2. `resources` holds a handler for each verb;
3. `registry` turns it into a write: `metadata`, `schema` and `builtin` complete and check the
   object, `rules` and `webhooks` admit it, `deletion` decides how far a DELETE goes;
4. `store` keeps it under a new revision and notifies those who `watch`.

Beside it, `controllers` collects garbage, ends namespaces and makes ServiceAccounts, and
`definitions` turns CustomResourceDefinitions into kinds. `discovery` and `table` serve kubectl,
`kubelets` forwards logs and exec, `metrics` is a metrics-server. Nothing here knows Volcano.

Left out on purpose: server-side apply and protobuf (415), aggregation, and persistence: stored
objects are gone when the process is.
"""
