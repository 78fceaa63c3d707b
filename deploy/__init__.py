"""How Fumarole is deployed: Kubernetes manifests and the local demo."""
