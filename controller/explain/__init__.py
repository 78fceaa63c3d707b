"""Explains why a session or a job cannot be used: names the first step that fails.

- ``judgements``: the steps in order, and their judgement, without I/O: token, grant, job, route,
  gateways, pod, port, probe. Each failure has a name and advice.
- ``probe``: connects to a target, and sends an app one request.
- ``explainer``: reads store, Redis and cluster, and probes.
- ``command``: ``fumarole-controller explain``.
"""
