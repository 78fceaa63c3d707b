"""The handlers, one resource a file, named as in the path after ``/v1/``."""
