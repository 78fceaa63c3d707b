"""The embedded cluster: the replacement of Kubernetes for the demo and the tests.

It consists of three programs. Each is a process, started as ``python -m
deploy.local.cluster.<name>``:

- ``apiserver`` serves the Kubernetes API for a table of kinds, from memory, and knows nothing of
  Volcano;
- ``volcano`` is an ordinary client: it installs Volcano's kinds and webhooks, turns jobs into
  PodGroups and Pods, and binds whole gangs to nodes;
- ``kubelet`` is an ordinary client too: it registers a node and runs bound pods as local processes
  in namespaces of their own.

`EmbeddedCluster` starts all three, waits until a job can be submitted, gives the paths of the
kubeconfigs, and ends everything that it started::

    async with EmbeddedCluster(seed=7) as cluster:
        environment = {"KUBECONFIG": str(cluster.kubeconfig("controller"))}

A run on it is a run on the embedded cluster, not on Kubernetes or Volcano.
``docs/embedded-cluster.md`` lists what it does not do.
"""

from deploy.local.cluster.launch import POD_NETWORK, EmbeddedCluster, Program

__all__ = ["POD_NETWORK", "EmbeddedCluster", "Program"]
