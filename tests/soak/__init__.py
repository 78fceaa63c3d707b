"""Hours in minutes: many idle sockets, and many opened and closed, with memory that stays flat."""
