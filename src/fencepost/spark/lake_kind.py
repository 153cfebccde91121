"""Addresses of lakes: `lake:FOLDER`, and `lake:s3://BUCKET/PREFIX` in an object store.

The entry point `lake` of the group `fencepost.engines` names `LAKE`. Parsing an address needs neither pyarrow nor
Spark, so this module imports neither.
"""

from __future__ import annotations

from typing import Final

from ..engine import Kind
from .location import object_url

LAKE: Final = Kind(
    "lake",
    ("lake",),
    "lake:FOLDER",
    "fencepost.spark.lake_engine.engine:open_engine",
    is_path=True,
    normalize=lambda location: object_url(location, "address") or location,
)
