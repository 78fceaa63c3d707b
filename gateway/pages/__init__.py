"""The gateway's own pages: all below ``/.fumarole/``, and what a desktop or terminal is shown in.

- ``app``: which path is whose. ``open``, ``sign_out``, ``session``: what the pages do.
- ``responses``: how they are sent; ``errors``: every refusal as a page.
- ``documents``, with ``templates/``: the HTML; ``texts``: what it says, in each language.
- ``assets``: scripts, styles and icons.
"""
