"""Tests of Fumarole's deployment: manifests, images, wheels, and the local demo."""
