"""A server that puts a store behind HTTP: `fencepost serve wallet.db`.

settings    what can be configured, by flags, FENCEPOST_* variables and a TOML file
messages    requests and answers over ASGI, with limits on size and time
app         what every request passes: admission, access, errors
handlers    what each path does
streams     long answers: NDJSON readings, subscriptions as server-sent events
heads       one thread that learns of new heads, for all requests that wait for one
routing     which path is answered by which handler
consumers   the status of consumers, and commands to them
verification   a check of the whole store while it is served
access      API keys: rights, and scopes that limit a key to some tags and types
metrics     counts and latencies, in the format of Prometheus, of one worker or of several as one
openapi     the description of the interface; page shows it to readers
listening   the sockets
observing   the log, on standard error, and spans of OpenTelemetry
serving     one process: the store, the server, and what happens at its end
workers     several processes that serve one store; worker is one of them

The server uses `AsyncEventStore` alone, so every engine can be served. fencepost.wire has the forms of what travels.
"""
