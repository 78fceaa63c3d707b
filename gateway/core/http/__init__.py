"""The syntax of HTTP/1.1 (RFC 9110, RFC 9112): raw bytes in, strict values out, and back.

- :mod:`.heads`, :mod:`.fields` and :mod:`.names` read the heads of requests in one pass,
  :mod:`.template` knows those like the last one, :mod:`.request_reader` collects them,
  :mod:`.response_heads` reads those of responses.
- :mod:`.headers` writes heads in canonical form; :mod:`.framing` frames bodies anew.
- :mod:`.cookies` and :mod:`.oversize` keep our cookie apart from the app's.
- :mod:`.accept`, :mod:`.http_date` and :mod:`.upgrade` are single fields.
"""
