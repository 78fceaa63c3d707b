"""Tests of how Fumarole is deployed."""
