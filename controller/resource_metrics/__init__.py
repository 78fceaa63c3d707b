"""Resource usage of running pods: CPU, memory, network and GPUs, with a short series.

Every process with the role ``api`` samples for itself at an interval: one list of all pods'
metrics, however many jobs there are (Kubernetes' resource metrics pipeline), and one query per
metric to a Prometheus server if the deployment has one.

- ``sources``: the metrics, the interface of sources, and the reasons for missing values.
- ``pod_metrics``: CPU and memory, from ``metrics.k8s.io``.
- ``prometheus``: network and GPUs, from a Prometheus server.
- ``sampler``: reads the sources, and keeps the last samples of each pod.

A source that is unavailable, slow, broken or huge affects only its own metrics.
"""
