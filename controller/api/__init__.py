"""controller.api."""
