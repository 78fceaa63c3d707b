"""Tests of the gateway's own pages."""
