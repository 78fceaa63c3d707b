"""Tests ten popular apps, each in a job, driven in Chromium across restarts of the gateway.

- `table`: a row per app: its packages, its command, the clicks, and the expected texts
- `install`: installs an app into a folder of its own outside of the repository
- `driving`: carries out a row's steps
- `page`: writes docs/apps.md

``make apps`` runs all of it.
"""
