"""The smoke run: the whole path, from the orchestrator's page to work done in three apps.

It uses what a person's browser would, and nothing else: the orchestrator's calls, the gateway's
open page, and each app's own protocol through the gateway.

- ``orchestrator``: signs in, starts, opens and stops apps.
- ``gateway``: turns a link into an open session, and speaks to it as its page would.
- ``notebook``, ``terminal``, ``desktop``: work in an app, and say what it answered.
- ``run``: all three at once, a line for each.
"""

from deploy.local.smoke.run import run_smoke

__all__ = ["run_smoke"]
