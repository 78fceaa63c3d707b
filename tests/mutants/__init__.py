"""Single mutations of the modules that decide, against the tests near them (``make mutants``).

::

    targets    which modules are mutated, and which tests are near each
    mutations  all mutants of a module: its syntax tree, changed at one place
    swap       puts a mutant into a process: new code for its functions, or the module imported anew
    worker     a pytest that has collected those tests; it records which lines each test executes,
               then forks for every mutant and runs the tests that execute the mutated lines
    children   forked processes: their deadlines, and the end of all that they started
    results    what was found, kept in ``results.json``; with ``reasons.toml`` it makes the page

A test that fails with a mutant has killed it. Whatever no test notices is a survivor: a missing
test, or a change that nobody can see, for which ``reasons.toml`` says why. No file of the tree is
changed: a mutant lives in the memory of one forked process.
"""
