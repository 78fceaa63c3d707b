"""What the demo runs in jobs: a catalogue, and a desktop of our own.

- ``catalogue``: the apps as jobs of the controller's API, and what to open of each.
- ``desktop``: the program in the desktop's container. It shows a ``painting`` through Xvnc (as
  the X client in ``x11``) where that is installed, else through the small server in ``rfb``.
"""
