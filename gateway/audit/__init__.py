"""The gateway's audit records: docs/audit.md.

::

    open page, pages, admission ──▶ Trail ──▶ shared.audit
    Live ──▶ Attachments ──▶ Trail            (refusals through a shared.record_quota)
"""
