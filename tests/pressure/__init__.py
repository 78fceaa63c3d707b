"""The gateway under pressure, tried from outside: what one connection may cost all the others.

A gateway runs as a process of its own, with a real Redis; browsers and apps are
sockets of the test.

    test_table      for every kind of connection, what each of the ways to misbehave may cost
    test_attacks_*  single attacks, each with an honest session beside it
    test_any_order  any bytes in any split, any events in any order (a state machine of Hypothesis)
    test_soak       all attackers at once beside 200 honest sessions, for as long as is asked

    ground          the gateway: its deadlines, and what the system says of its process
    browser         a client whose every byte, FIN and read is decided by the test
    apps, kinds     apps by how they behave; connections by what is under way on them
    honest          a program of its own: sessions that are checked to the byte, and timed
    cable           a program of its own: two hosts with a cable between them that can be cut
"""
