"""The smoke run: tests the whole path, from the orchestrator's page to work done in three apps.

It uses only what a user's browser would: the orchestrator's calls, the gateway's open page, and
each app's own protocol through the gateway.

- ``orchestrator``: signs in, starts, opens and stops apps.
- ``gateway``: turns a link into an open session, and uses it as the session's page would.
- ``notebook``, ``terminal``, ``desktop``: do work in an app, and return the app's response.
- ``run``: runs all three at once, with one line of output for each.
"""

from deploy.local.smoke.run import run_smoke

__all__ = ["run_smoke"]
