"""Tests of the embedded kubelet."""
