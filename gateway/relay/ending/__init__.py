"""How connections end: closing, resetting, and what is closed later, in one place."""
