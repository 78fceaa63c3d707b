"""`make demo`: Fumarole and everything that it needs, on one machine."""
