"""UmaDB's gRPC interface over a store of any engine: existing UmaDB clients work unchanged.

protobuf    the messages of `umadb.v1` and `grpc.health.v1`, built from a table of their fields
mapping     events and queries of UmaDB as those of Fencepost, and back
service     the service `umadb.v1.DCB`, also under its old name, and the health service, served by grpcio

docs/reference/grpc.md lists the differences. tests/server/test_umadb.py runs the real `umadb` client against this
server and against UmaDB's own, and compares the answers.
"""
