"""Simulates hours in minutes: many idle sockets, many short-lived sockets, and constant memory."""
