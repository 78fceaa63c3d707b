"""Ten apps that people run, each in a job, driven in Chromium over restarts of the gateway.

`table` has a row per app: what is installed, how it is started, what to click and what must be
seen then. `install` brings it into a folder of its own outside of the repository, `driving` does
what a row says, and `page` writes docs/apps.md. ``make apps`` runs all of it.
"""
