"""The Remote Framebuffer protocol (RFC 6143), as far as a bridge must understand it.

A bridge relays RFB without parsing it, with three exceptions:

- The gateway leads the handshake (:mod:`.handshake`) if it knows the desktop's password, if the
  browser may only view, or if the clipboard is restricted. The password then never reaches the
  browser, and nothing unexpected is negotiated.
- The messages of a browser that may only view, or not paste, are parsed, and forbidden ones are
  dropped (:mod:`.browser_filter`).
- The messages of a desktop whose clipboard must not leave it are measured (:mod:`.desktop_filter`).

Bytes may arrive in any pieces. Bytes that cannot be parsed end the connection.
"""
