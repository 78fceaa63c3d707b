"""controller.plugins."""
