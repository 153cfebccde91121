"""What the other parts of `fencepost.spark` share.

    options     the options of a reader and a writer, checked when the source is created
    places      which store an option or argument names, and where an address with a password is kept
    columns     the columns of an event and their types
    batches     streams whose batches are ranges of positions, which the caller reads
    tasks       ranges of positions over tasks: one input for each task, batches back, or an error as one sentence
    shipping    classes of events and projections, imported by name in the workers

These modules depend on no other part, and every other part may import from here.
"""

from __future__ import annotations

from ..location import absolute_location, local_path
from .batches import Batch, follow_ranges
from .columns import (
    TYPES,
    arrow_schema,
    check_narrowed,
    full_schema,
    position_column,
    position_type,
    tag_values,
)
from .options import READING, Options, parse
from .places import LakePart, Snapshot, Store, address_of, bounds_of, place_of
from .shipping import Shipped, shipped
from .tasks import LINES, default_parts, entries_in, even_borders, line_of, over_tasks, parallelism, ranges, reporting

__all__ = [
    "LINES",
    "READING",
    "TYPES",
    "Batch",
    "LakePart",
    "Options",
    "Shipped",
    "Snapshot",
    "Store",
    "absolute_location",
    "address_of",
    "arrow_schema",
    "bounds_of",
    "check_narrowed",
    "default_parts",
    "entries_in",
    "even_borders",
    "follow_ranges",
    "full_schema",
    "line_of",
    "local_path",
    "over_tasks",
    "parallelism",
    "parse",
    "place_of",
    "position_column",
    "position_type",
    "ranges",
    "reporting",
    "shipped",
    "tag_values",
]
