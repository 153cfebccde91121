"""The stored forms of tags, metadata and times.

Tags are a sorted JSON array, metadata is a JSON object with sorted names, and a time is microseconds since 1970, UTC.
JSON is readable by every tool and exact for every string, and sorting gives equal values equal texts. docs/reference/
sqlite-format.md relies on these forms; tests/unit/test_model.py holds that decoding undoes encoding.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta, timezone
from typing import Final

import msgspec

# What the decoders raise: for malformed text, for a time out of range, and for nesting that is too deep.
NOT_DECODABLE: Final = (ValueError, OverflowError, RecursionError)

encode_json: Final = msgspec.json.Encoder(order="deterministic").encode
decode_tags: Final = msgspec.json.Decoder(frozenset[str]).decode
_decode_mapping = msgspec.json.Decoder(dict[str, str]).decode
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)


def encode_tags(tags: Iterable[str]) -> str:
    """
    >>> encode_tags({"wallet:w1", "owner:ada"})
    '["owner:ada","wallet:w1"]'
    """
    return encode_json(sorted(tags)).decode()


def encode_metadata(metadata: Mapping[str, str]) -> str | None:
    """Empty metadata is stored as NULL."""
    return encode_json(metadata).decode() if metadata else None


def decode_metadata(text: str | None) -> dict[str, str]:
    return _decode_mapping(text) if text else {}


def decode_moment(microseconds: int) -> datetime:
    """Exact. `datetime.fromtimestamp` goes through a float and rounds."""
    return _EPOCH + timedelta(microseconds=microseconds)


def encode_moment(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(microseconds=1)
