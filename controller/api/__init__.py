"""The orchestrator's HTTP API, one resource a file. docs/controller-api.md is its contract.

- ``application`` assembles it; ``authentication`` lets in nobody but the orchestrator.
- ``requests`` reads what was sent, strictly; ``error_responses`` names every problem with its path.
  ``response_models``: what is sent.
- ``resources``: one a file, with a function for each call; each calls one of the ``parts``, which
  decide, and returns what is shown.
- ``operations``: what is offered, from these functions' signatures. ``openapi`` describes the API
  from it, the models and their ``examples.json``; ``docs_page`` shows that to people.
- ``server_sent_events``: streams, written as fast as they are read. ``audit``: its records.
"""
