"""The orchestrator's HTTP API. docs/controller-api.md is its contract.

- ``application`` assembles the API; ``authentication`` verifies the orchestrator's bearer token.
- ``requests`` parses requests strictly; ``error_responses`` names each problem by its path;
  ``response_models`` are the bodies of responses.
- ``resources``: one module per resource, one function per operation. A function calls ``parts``
  and returns a response model.
- ``operations`` reads each operation from the signature of its function. ``openapi`` describes the
  operations, with ``examples.json``; ``docs_page`` serves that description as a page.
- ``server_sent_events``: event streams with backpressure. ``audit``: audit records of the API.
"""
