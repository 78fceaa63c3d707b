"""gateway.pages."""
