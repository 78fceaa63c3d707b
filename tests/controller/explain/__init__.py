"""Tests of explanations: why a session or a job cannot be used."""
