"""Tests of the controller's HTTP API."""
