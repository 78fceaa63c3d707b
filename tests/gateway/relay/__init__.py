"""Tests of how the gateway moves bytes."""
