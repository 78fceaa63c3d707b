"""Tests of what the gateway decides."""
