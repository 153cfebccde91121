"""What the other parts of `fencepost.spark` share.

    options     the options of a reader and a writer, checked when the source is created
    places      which store an option or argument names, and where an address with a password is kept
    columns     the columns of an event and their types
    hadoop      whether this Spark session can itself open files of an object store
    batches     streams whose batches are ranges of positions, which the caller reads
    tasks       ranges of positions over tasks: one input for each task, batches back
    errors      errors of a worker that reach the driver as one sentence
    shipping    classes of events and projections, imported by name in the workers
    locking     one process at a time, by a lock on a file; work that begins again

These modules depend on no other part, and every other part may import from here.
"""

from __future__ import annotations

from .batches import Batch, follow_ranges
from .columns import (
    TYPES,
    WIDE,
    arrow_schema,
    check_narrowed,
    full_schema,
    position_column,
    position_type,
    tag_values,
)
from .errors import reported, reporting
from .hadoop import native_folder
from .locking import PATIENCE_S, changing, locked, patiently
from .options import READING, WRITING, Options, parse
from .places import LakePart, Snapshot, Store, absolute_lake, address_of, bounds_of, local_path, place_of
from .shipping import Shipped, shipped
from .tasks import Work, default_parts, even_borders, over_tasks, ranges

__all__ = [
    "PATIENCE_S",
    "READING",
    "TYPES",
    "WIDE",
    "WRITING",
    "Batch",
    "LakePart",
    "Options",
    "Shipped",
    "Snapshot",
    "Store",
    "Work",
    "absolute_lake",
    "address_of",
    "arrow_schema",
    "bounds_of",
    "changing",
    "check_narrowed",
    "default_parts",
    "even_borders",
    "follow_ranges",
    "full_schema",
    "local_path",
    "locked",
    "native_folder",
    "over_tasks",
    "parse",
    "patiently",
    "place_of",
    "position_column",
    "position_type",
    "ranges",
    "reported",
    "reporting",
    "shipped",
    "tag_values",
]
