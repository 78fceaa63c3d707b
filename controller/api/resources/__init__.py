"""The handlers, one module per resource, named after the path segment that follows ``/v1/``."""
