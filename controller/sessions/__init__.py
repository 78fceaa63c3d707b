"""controller.sessions."""
