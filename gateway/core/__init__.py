"""gateway.core."""
