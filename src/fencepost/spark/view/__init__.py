"""Views: folds that are kept, and brought up to date by folding only the new events.

views       `View`: refresh, read the latest version or an older one, follow the log
changes     what changed between two positions of a view
place       what a view asks of the place that it is kept at
folder      Parquet layers in a folder or an object store, and the manifest that says which of them make up a version
layers      what a view asks of its layers; layers in a folder, by Spark's own writer and reader
object_layers   layers in an object store, written and read by tasks in Python
files       a Delta or an Iceberg table
bucket_files  the files of such a table
table       a table in PostgreSQL
"""

from __future__ import annotations

from .views import Refreshed, View

__all__ = ["Refreshed", "View"]
