"""What the gateway decides, without I/O: bytes and facts in, values and actions out.

- Heads: :mod:`.heads`, :mod:`.fields`, :mod:`.request_reader` and :mod:`.app_heads` read them
  strictly; :mod:`.headers` writes them in canonical form; :mod:`.framing` frames bodies anew.
- :mod:`.http` is one downstream connection: the phases of a request and its response.
- Rights: :mod:`.access` decides each request with :mod:`.grants`, :mod:`.origins`, :mod:`.passage`.
- Bounds: :mod:`.places`, :mod:`.rates`, :mod:`.refusal_rate`, :mod:`.overload`.
- :mod:`.frames` follows WebSocket frames, :mod:`.rfb` desktops' protocol.
"""
