"""The gateway's own pages: everything below ``/.fumarole/``, and the pages of desktop and terminal.

- ``app`` has the URL paths; ``open``, ``sign_out`` and ``session`` have the handlers.
- ``responses`` adds the header fields that all pages share; ``errors`` renders refusals as pages.
- ``documents`` fills the HTML in ``templates/`` with the texts of ``texts``, which reads
  ``languages/``.
- ``assets`` loads scripts, styles and icons, which are built from ``gateway/web``.
"""
