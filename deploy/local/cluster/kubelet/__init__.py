"""A kubelet whose Pods are processes of this machine, in namespaces of their own.

- `pod` runs one Pod. It writes the `volumes` from `sources` and `storage`, starts a sandbox
  (`sandboxes` here, `sandbox` inside), runs the containers (`container`, by means of `images`,
  `environment` and `mounts`), runs the `probes` (`checks`), and publishes the `status`.
- `relay` makes the Pod's address reachable on this machine, `server` serves logs and exec to the
  API server, `node` registers the node.
- `network` joins the Pods: `links` between them and the node by `netlink`, a `firewall` that
  applies `policies`, a name server (`names`), and `services` with addresses of their own.

A container that takes more `memory` than its limit is killed, as soon as that is seen. Other limits
and requests are not enforced, except the size of memory volumes. Namespaces keep Pods apart; they
are no boundary against a hostile program. If the kernel refuses namespaces, Pods are plain
processes without mounts, and the log says so.
"""
