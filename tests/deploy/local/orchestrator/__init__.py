"""Tests of the reference orchestrator."""
