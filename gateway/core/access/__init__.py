"""Access: one pure decision for each request, and what it rests on.

- :mod:`.decision` is the decision; docs/session-token.md is its contract.
- :mod:`.grants` are what cookies carry, :mod:`.opening` how a token becomes one,
  :mod:`.access_right` by which right a connection goes on.
- :mod:`.refusals` is the table of the gateway's own responses, :mod:`.explain` the same decision
  in words for operators, :mod:`.site` what browsers see of this gateway, and where
  requests may come from.
"""
