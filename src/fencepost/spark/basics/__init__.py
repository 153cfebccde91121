"""What the other parts of `fencepost.spark` share.

    options     the options of a reader and a writer, checked when the source is created
    places      which store an option or argument names, and where an address with a password is kept
    columns     the columns of an event and their types
    batches     streams whose batches are ranges of positions, which the caller reads
    tasks       ranges of positions over tasks: one input for each task, batches back, or an error as one sentence
    shipping    classes of events and projections, imported by name in the workers
    locking     one process at a time, by a lock on a file; work that begins again

These modules depend on no other part, and every other part may import from here.
"""

from __future__ import annotations

from ...engines.lake.paths import absolute_lake, local_path
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
from .locking import PATIENCE_S, changing, locked
from .options import READING, Options, parse
from .places import LakePart, Snapshot, Store, address_of, bounds_of, place_of
from .shipping import Shipped, shipped
from .tasks import LINES, default_parts, entries_in, even_borders, line_of, over_tasks, parallelism, ranges, reporting

__all__ = [
    "LINES",
    "PATIENCE_S",
    "READING",
    "TYPES",
    "Batch",
    "LakePart",
    "Options",
    "Shipped",
    "Snapshot",
    "Store",
    "absolute_lake",
    "address_of",
    "arrow_schema",
    "bounds_of",
    "changing",
    "check_narrowed",
    "default_parts",
    "entries_in",
    "even_borders",
    "follow_ranges",
    "full_schema",
    "line_of",
    "local_path",
    "locked",
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
