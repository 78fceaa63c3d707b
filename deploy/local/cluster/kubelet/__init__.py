"""A kubelet whose Pods are processes of this machine, in namespaces of their own.

`pod` runs one Pod: it writes the `volumes` from `sources` and `storage`, starts a sandbox
(`sandboxes` here, `sandbox` inside), runs the containers (`container`, with what `images`,
`environment` and `mounts` make of their specs), asks the `probes` (`checks`), and publishes the
`status`. `relay` makes the Pod's address answer on this machine, `server` gives logs and exec to
the API server, `node` registers us.

`network` joins the Pods: `links` between them and the node by `netlink`, a `firewall` that asks
`policies`, a server for `names`, and `services` with addresses of their own.

A container that takes more `memory` than its limit is killed, as soon as that is seen; other limits
and requests are not enforced, except the size of memory volumes. Namespaces keep Pods out of each
other's way; they are no boundary against a hostile program. Where the kernel refuses them, Pods are
plain processes without mounts, and the log says so.
"""
