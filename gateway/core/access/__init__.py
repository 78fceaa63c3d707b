"""Access: one pure decision for each request, and its inputs.

- :mod:`.decision` is the decision; docs/session-token.md is its contract.
- :mod:`.grants` are the values of cookies, and :mod:`.opening` makes them from tokens.
- :mod:`.access_right` is a connection's right to exist, and whether it still holds.
- :mod:`.refusals` is the table of the gateway's own responses; :mod:`.explain` tells operators why
  a host is served or not.
- :mod:`.site` holds the public origin of this gateway and checks where requests come from.
- :mod:`.assertions` signs the user's identity for apps.
"""
