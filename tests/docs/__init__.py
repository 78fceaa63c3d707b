"""Tests the documentation: it builds, agrees with the code, and its commands run."""
