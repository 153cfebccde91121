"""HTTP/2 for gRPC: connections that carry calls of one request message each.

frames       the frames of HTTP/2 (RFC 9113), read from bytes and written, and what violates the protocol
output       what is sent: gathered for one turn of the event loop, and watched
blocks       blocks of headers: decoded with `hpack`, and remembered, since a client sends the same ones again and again
connection   one connection: frames in and out, flow control, limits
streams      one call: its request, its answer, and its end
listening    a port: what its connections share, and their orderly end
statuses     how a call can end

Only what gRPC needs is here: no priorities, no push, no upgrade from HTTP/1.1. docs/decisions/073 has the reason for
an implementation of our own. tests/server/test_http2.py attacks it, and tests/server/test_umadb.py runs real clients.
"""
