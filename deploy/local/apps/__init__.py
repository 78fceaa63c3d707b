"""The demo's jobs: a catalogue of apps, and a desktop.

- ``catalogue``: the apps as jobs of the controller's API, and the endpoint to open of each.
- ``desktop``: the program in the desktop's container. It shows a ``painting`` by Xvnc (as the X
  client in ``x11``) if Xvnc is installed, else by the small server in ``rfb``.
"""
