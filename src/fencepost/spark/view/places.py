"""Which place the address of a view names: a folder, a prefix of an object store, or a table of Delta, Iceberg or
PostgreSQL."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql.types import StructType

from ...address import POSTGRES, object_url
from ...errors import InvalidInput
from ...redaction import redacted
from ..basics import local_path
from ..folding import Plan
from ..formats import FORMATS
from .files import FilesPlace
from .folder import FolderPlace, check_folder
from .place import Place


def place_at(at: str, plan: Plan, keep: int, schema: StructType) -> Place:
    """The place of a view with these columns, which keeps that many versions."""
    scheme, _, rest = at.partition(":") if isinstance(at, str) else ("", "", "")
    if scheme in FORMATS and rest:
        return FilesPlace.at(scheme, rest, plan, keep, schema)
    if scheme == "file" and rest:
        folder = Path(local_path(at, "at")).absolute()
        check_folder(folder)
        return FolderPlace.of(folder, plan, keep)
    url = object_url(at, "at") if isinstance(at, str) else None
    if url is not None:
        return FolderPlace.of(url, plan, keep)
    if scheme in POSTGRES.schemes:
        from .table import TablePlace

        return TablePlace.of(at, plan)
    given = redacted(at) if isinstance(at, str) else type(at).__name__
    forms = "file:<folder>, s3://<bucket>/<prefix>, delta:<folder>, iceberg:<folder> or postgresql://…?table=<name>"
    raise InvalidInput("at", f"{forms} is needed, not {given!r:.80}")
