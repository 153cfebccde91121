"""What tools may ask of event classes, projections and decisions: consumers, Spark's folds and typed tables, observers.

Programs that only decide do not need this module. It is part of the door: other packages import from
`fencepost.decisions` and from here, and from no other module of this package.
"""

from .annotations import alternatives, evaluate, location_of, visible_names
from .codecs import Codec, json_codec, msgpack_codec
from .decorator import Decision
from .errors import TypeUnknown
from .events import VERSION, Declaration, declaration_of, tag_text
from .execution import ConflictMet, DecisionEnded
from .fingerprint import fingerprint
from .projections import Definition, items_of, query_of, state_of
from .snapshots import Snapshot, digest_of, encode_state, restore

__all__ = [
    "VERSION",
    "Codec",
    "ConflictMet",
    "Decision",
    "DecisionEnded",
    "Declaration",
    "Definition",
    "Snapshot",
    "TypeUnknown",
    "alternatives",
    "declaration_of",
    "digest_of",
    "encode_state",
    "evaluate",
    "fingerprint",
    "items_of",
    "json_codec",
    "location_of",
    "msgpack_codec",
    "query_of",
    "restore",
    "state_of",
    "tag_text",
    "visible_names",
]
