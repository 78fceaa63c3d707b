"""What running pods use: processors, memory, network and GPUs, now and in the last minutes.

Every process with the role ``api`` samples for itself, once an interval: one list of all pods'
metrics, however many jobs there are (Kubernetes' resource metrics pipeline), and one query per
metric to a Prometheus server where the deployment has one.

- ``sources``: the metrics, what a source of them is, and why it may have none.
- ``pod_metrics``: processors and memory, from ``metrics.k8s.io``.
- ``prometheus``: network and GPUs, from a Prometheus server.
- ``sampler``: asks the sources, and keeps the last samples of each pod.

A source that is away, slow, broken or huge leaves its own metrics empty, and harms nothing else.
"""
