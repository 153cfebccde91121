"""How requests, events and errors travel between a server and its clients.

documents   appends and queries as JSON, for clients in any language
rows        the same as msgpack arrays, which Fencepost's own client uses
problems    errors as problem+json (RFC 9457), and back into the exceptions of `fencepost.errors`

A document or a row is turned into the values of `fencepost.model`, which check it. So a server accepts exactly what a
store accepts. tests/server/test_wire.py checks that every event comes back byte for byte in both forms.
"""
