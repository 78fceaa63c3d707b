"""controller.store."""
