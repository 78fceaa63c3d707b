"""`make demo`: Fumarole with everything around it on one machine."""
