"""controller.kube."""
