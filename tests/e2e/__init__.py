"""The whole system as users have it: real processes, real apps, a real browser."""
