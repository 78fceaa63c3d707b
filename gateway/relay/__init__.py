"""gateway.relay."""
