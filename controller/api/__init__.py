"""The orchestrator's HTTP API, one resource a file. docs/controller-api.md is its contract.

- ``app`` assembles it; ``bearer`` lets in nobody but the orchestrator.
- ``bodies`` reads what was sent, strictly; ``answers`` says what is wrong with it, every problem
  with its path.
- ``jobs``, ``sessions``: the resources; each reads, calls the service that decides, and answers.
- ``openapi``: the description, made from the models that validate.
"""
