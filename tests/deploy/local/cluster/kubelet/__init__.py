"""The kubelet."""
