"""The orchestrator's HTTP API, one resource a file. docs/controller-api.md is its contract.

- ``application`` assembles it; ``authentication`` lets in nobody but the orchestrator.
- ``requests`` reads what was sent, strictly; ``error_responses`` names every problem with its path.
  ``response_models``: what is sent.
- ``operations``: what is offered, as a table. ``openapi`` describes the API from it, the models and
  their ``examples.json``; ``docs_page`` shows that to people.
- ``resources``: one a file; each reads, calls the service that decides, and responds.
- ``server_sent_events``: streams, written as fast as they are read. ``audit``: its records.
"""
