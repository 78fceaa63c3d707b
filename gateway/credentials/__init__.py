"""The handling of credentials with I/O; :mod:`gateway.core.access` decides without it.

- :mod:`.session_tokens` verifies tokens and marks them as used in Redis.
- :mod:`.sign_outs` ends the grants of users who sign out.
"""
