"""Says why a session or a job cannot be used: the first thing on the way that fails.

- ``findings``: what is looked at, in order; what each failure is called, and what to do about it.
- ``judgements``: what facts mean, without I/O: token, grant, route, gateways, pod, port, probe.
- ``probe``: dials a target, within seconds, and asks it one thing.
- ``explainer``: reads the store, Redis and the cluster, and probes.
- ``command``: ``fumarole-controller explain``.
"""
