"""controller.volcano."""
