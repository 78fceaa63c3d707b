"""The orchestrator's HTTP API, one resource a file. docs/controller-api.md is its contract.

- ``app`` assembles it; ``bearer`` lets in nobody but the orchestrator.
- ``bodies`` reads what was sent, strictly; ``answers`` says what is wrong with it, every problem
  with its path.
- ``operations``: what is offered, as a table; ``queries``, ``shown``: parameters and answers as
  models. ``openapi`` describes the API from these and the models that validate.
- ``jobs``, ``wishes``, ``tasks``, ``logs``, ``updates``, ``usage``, ``sessions``, ``products``,
  ``maintenance``: the resources; each reads, calls the service that decides, and answers.
- ``events``: streams, written as fast as they are read.
"""
