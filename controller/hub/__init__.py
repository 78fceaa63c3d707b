"""controller.hub."""
