"""A Kubernetes API server for a table of kinds, from memory.

A request passes through these, and each but the last two decides without I/O:

1. `app` asks `access` who it is, `requests` what it is about, and `access` whether they may;
2. `resources` holds a handler per verb;
3. `registry` makes a write of it: `metadata`, `schema` and `builtin` complete and check the
   object, `rules` and `webhooks` admit it, `deletion` says how far a DELETE goes;
4. `store` keeps it under a new revision and tells those who `watch`.

Beside it, `controllers` collects garbage, ends namespaces and makes ServiceAccounts, and
`definitions` turns CustomResourceDefinitions into kinds. `discovery` and `table` are what
kubectl needs, `kubelets` carries logs and exec, `metrics` is a metrics-server. Nothing here knows
Volcano.

Left out on purpose: strategic merge patch and apply (415), deletecollection (405), quota,
aggregation, persistence: what is stored is gone when the process is.
"""
