"""Which Iceberg catalog a table is in: one of its own, in a SQLite file, or one that the user has configured.

A catalog of its own needs a folder: the file `catalog.db` beside the table's metadata. In an object store there can be
no such file, so there the user names a catalog of pyiceberg's configuration (`.pyiceberg.yaml`, or variables such as
`PYICEBERG_CATALOG__NAME__URI`): REST, Glue, SQL or another kind. Two lakes in one catalog have different tables,
because the table's name is made of the place. tests/spark/test_formats.py and tests/spark/slow/test_object_tables.py
hold this.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Final

from ...errors import InvalidInput, StoreUnavailable
from ...storage import Storage
from .table import CatalogName, said

try:
    from pyiceberg.catalog import Catalog, load_catalog
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.utils.config import Config
except ImportError as error:
    raise ImportError(f"{error}; an Iceberg table needs its library: pip install 'fencepost[lake]'") from error

NAMESPACE: Final = "fencepost"
DIGEST_LENGTH: Final = 8  # hexadecimal digits of the place in the name of a table
NAME_LENGTH: Final = 40  # of the readable part
_REGIONS: Final = ("AWS_REGION", "AWS_DEFAULT_REGION")


def identifier(storage: Storage, name: str, catalog: CatalogName | None) -> str:
    """The table's name in the catalog. In a catalog that others use, it is made of the place that the table is at."""
    if catalog is None:
        return f"{NAMESPACE}.{name}"
    if catalog.table is not None:
        return catalog.table
    place = storage.name()
    readable = re.sub(r"[^a-z0-9]+", "_", place.rpartition("/")[2].lower()).strip("_")[:NAME_LENGTH]
    return f"{NAMESPACE}.{name}_{readable}_{sha256(place.encode()).hexdigest()[:DIGEST_LENGTH]}"


@contextmanager
def opened(home: Path | None, catalog: CatalogName | None) -> Iterator[Catalog]:
    """The named catalog, or the one in the folder `home`."""
    if catalog is None:
        assert home is not None, "a table in an object store needs a catalog, which the caller checks"
        home.mkdir(parents=True, exist_ok=True)
        found: Catalog = SqlCatalog(NAMESPACE, uri=f"sqlite:///{home}/catalog.db", warehouse=f"file://{home}")
    else:
        found = _configured(catalog.name, catalog.field)
    try:
        yield found
    finally:
        found.close()


def _configured(name: str, field: str) -> Catalog:
    """The catalog of that name in pyiceberg's configuration, as it is now."""
    configured = Config()  # read again: pyiceberg itself reads it once, when it is imported
    settings = configured.get_catalog_config(name)
    if settings is None:
        known = ", ".join(configured.get_known_catalogs()) or "none"
        raise InvalidInput(
            field,
            f"pyiceberg's configuration has no catalog {name!r:.80} (known: {known}); describe it in .pyiceberg.yaml "
            f"or in variables such as PYICEBERG_CATALOG__{name.upper():.80}__URI",
        )
    try:
        return load_catalog(name, **{**_from_environment(), **{key: str(value) for key, value in settings.items()}})
    except Exception as error:  # each kind of catalog raises errors of its own library
        raise StoreUnavailable(f"the Iceberg catalog {name} cannot be opened: {said(error)}") from None


def _from_environment() -> dict[str, str]:
    """The endpoint and the region of S3: obstore and deltalake read these variables, pyiceberg does not."""
    from ...storage.objects import ENDPOINTS

    found = {
        "s3.endpoint": next((os.environ[each] for each in ENDPOINTS if os.environ.get(each)), ""),
        "s3.region": next((os.environ[each] for each in _REGIONS if os.environ.get(each)), ""),
    }
    return {name: value for name, value in found.items() if value}
