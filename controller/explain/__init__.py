"""Says why a session or a job cannot be used: the first thing on the way that fails.

- ``judgements``: what is looked at, in order, and what the facts mean, without I/O: token, grant,
  route, gateways, pod, port, probe. Each failure has a name and advice.
- ``probe``: dials a target, within seconds, and asks it one thing.
- ``explainer``: reads the store, Redis and the cluster, and probes.
- ``command``: ``fumarole-controller explain``.
"""
