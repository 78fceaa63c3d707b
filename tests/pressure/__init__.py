"""Tests the gateway under attack: what one connection may cost all the others.

A gateway runs as a process of its own, with a real Redis; browsers and apps are
sockets of the test.

- ``test_attack_costs``: for every kind of connection, the cost of each misbehaviour
- ``test_attacks_*``: single attacks, each with an honest session beside it
- ``test_soak``: all attackers at once beside 200 honest sessions, for a chosen time
- ``gateway_under_test``: the gateway, its deadlines, and the kernel's data about its process
- ``browser``: a client; the test decides about its every byte, FIN and read
- ``apps``, ``kinds``: apps by behaviour; connections by the work under way on them
- ``honest``: a separate program with sessions that are checked to the byte, and timed
- ``cable``: a separate program with two hosts and a cable between them that can be cut
"""
