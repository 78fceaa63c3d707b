"""Tests single mutations of the deciding modules with the tests near them (``make mutants``).

- ``targets``: the mutated modules, and the tests near each
- ``mutations``: all mutants of a module: its syntax tree, changed at one place
- ``swap``: puts a mutant into a process: new code for its functions, or the module imported anew
- ``worker``: a pytest that has collected those tests. It records which lines each test executes.
  Then it forks for every mutant and runs the tests that execute the mutated lines.
- ``children``: forked processes: their deadlines, and the end of all that they started
- ``results``: the results, kept in ``results.json``; with ``reasons.toml`` they make the page

A test that fails with a mutant has killed the mutant. A mutant that no test notices is a survivor:
a
missing test, or an invisible change, for which ``reasons.toml`` gives the reason. No file of the
tree is changed: a mutant lives in the memory of one forked process.
"""
