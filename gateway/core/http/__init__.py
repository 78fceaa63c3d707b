"""The syntax of HTTP/1.1 (RFC 9110, RFC 9112): raw bytes in, strict values out, and back.

- :mod:`.request_reader` collects request heads. :mod:`.heads`, :mod:`.fields` and :mod:`.names`
  parse them in one pass, or recognise repeated ones.
- :mod:`.response_heads` parses response heads, and what becomes of a 101; :mod:`.public_fields`
  adapts redirects and cookies to the public address.
- :mod:`.headers` writes heads in canonical form; :mod:`.framing` frames bodies.
- :mod:`.cookies` keeps the gateway's cookies apart from the app's.
- :mod:`.accept` and :mod:`.upgrade` handle single fields.
"""
