"""The messages of `umadb.v1` and `grpc.health.v1`, built from a table of their fields.

The table takes the place of generated code: no protoc is needed, and the numbers can be read beside the names.
"""

from __future__ import annotations

from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_FIELD = descriptor_pb2.FieldDescriptorProto
_SCALARS: Final = {
    "string": _FIELD.TYPE_STRING,
    "bytes": _FIELD.TYPE_BYTES,
    "uint64": _FIELD.TYPE_UINT64,
    "uint32": _FIELD.TYPE_UINT32,
    "bool": _FIELD.TYPE_BOOL,
    "int32": _FIELD.TYPE_INT32,
}

# For each message, its fields: number, name, type. `?` marks a field whose absence is known, `*` a repeated one.
# An enum travels as an int32, so enums are written as that.
UMADB: Final = {
    "MetadataEntry": "1 key string, 2 value string",
    "Event": "1 event_type string, 2 tags string*, 3 data bytes, 4 uuid string, 5 metadata MetadataEntry*",
    "TrackingInfo": "1 source string, 2 position uint64",
    "SequencedEvent": "1 position uint64, 2 event Event, 3 tracking_info TrackingInfo?",
    "QueryItem": "1 types string*, 2 tags string*",
    "Query": "1 items QueryItem*",
    "AppendCondition": "1 fail_if_events_match Query?, 2 after uint64?",
    "ReadRequest": "1 query Query?, 2 start uint64?, 3 backwards bool?, 4 limit uint32?, 5 subscribe bool?, "
    "6 batch_size uint32?",
    "ReadResponse": "1 events SequencedEvent*, 2 head uint64?",
    "SubscribeRequest": "1 query Query?, 2 after uint64?, 3 batch_size uint32?",
    "SubscribeResponse": "1 events SequencedEvent*",
    "AppendRequest": "1 events Event*, 2 condition AppendCondition?, 3 tracking_info TrackingInfo?",
    "AppendResponse": "1 position uint64",
    "HeadRequest": "",
    "HeadResponse": "1 position uint64?",
    "TrackingRequest": "1 source string",
    "TrackingResponse": "1 position uint64?",
    "ErrorResponse": "1 message string, 2 error_type int32",
}
HEALTH: Final = {"HealthCheckRequest": "1 service string", "HealthCheckResponse": "1 status int32"}


def _built(package: str, table: dict[str, str]) -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
    for name, fields in table.items():
        message = file.message_type.add(name=name)
        for text in filter(None, fields.split(", ")):
            number, field_name, kind = text.split()
            field = message.field.add(name=field_name, number=int(number), label=_FIELD.LABEL_OPTIONAL)
            if kind.endswith("*"):
                field.label = _FIELD.LABEL_REPEATED
            kind_name = kind.rstrip("?*")
            if kind_name in _SCALARS:
                field.type = _SCALARS[kind_name]
                if kind.endswith("?"):
                    field.proto3_optional = True
                    field.oneof_index = len(message.oneof_decl)
                    message.oneof_decl.add(name=f"_{field_name}")
            else:
                field.type, field.type_name = _FIELD.TYPE_MESSAGE, f".{package}.{kind_name}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}")) for name in table}


_MESSAGES: Final = {**_built("umadb.v1", UMADB), **_built("grpc.health.v1", HEALTH)}


def __getattr__(name: str) -> Any:
    """The class of a message, such as `messages.Event`."""
    if name not in _MESSAGES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _MESSAGES[name]
