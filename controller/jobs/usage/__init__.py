"""What a job takes of the cluster, and what it has used: absolute amounts, entered once a period.

- ``demand``: resources of a job and what it is charged by.
- ``periods``: replica-seconds from the recorded pods. ``ledger``: enters them.

Source: docs/plugins/accounting.md.
"""
