"""Where a lake or a view is: a folder, also as a `file:` URL, or a prefix of an object store.

A text such as `hdfs://host/lake` is also a valid relative path. Without a check it would silently become a folder of
that name below the working directory, so URLs of other file systems are refused. Parsing needs neither pyarrow nor
Spark. tests/unit/test_paths.py checks this.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from ..engine import redacted
from ..errors import InvalidInput

OBJECT_STORES: Final = {"S3": ("s3", "s3a"), "Google Cloud Storage": ("gs",), "Azure": ("az", "abfss", "abfs")}

_OBJECT_SCHEMES: Final = tuple(scheme for schemes in OBJECT_STORES.values() for scheme in schemes)
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")
_PART_OF_URL: Final = re.compile(r"[#?]|%[0-9A-Fa-f]{2}")
# A bucket, with its account for abfs and abfss, and a prefix: nothing that has to be escaped, and no secrets.
_OBJECTS: Final = re.compile(r"[\w.-]+(?:@[\w.-]+)?(?:/[\w.=+-]+)*/?", re.ASCII)


def object_url(text: str, name: str) -> str | None:
    """The URL of a prefix in an object store, in its usual form; None if the text is not such a URL.

    Raises `InvalidInput` for a URL that is malformed or holds credentials. `name` is the argument or option.

    >>> object_url("s3a://bucket/lakes/wallet/", "folder"), object_url("data/lake", "folder")
    ('s3://bucket/lakes/wallet', None)
    """
    scheme, slashes, rest = text.partition("://")
    if not slashes or scheme not in _OBJECT_SCHEMES:
        return None
    takes_account = scheme.startswith("abfs")
    parts = rest.rstrip("/").split("/")
    if not _OBJECTS.fullmatch(rest) or ("@" in rest) > takes_account or {".", ".."} & set(parts):
        raise InvalidInput(
            name,
            f"{redacted(text):.80} is not the URL of a prefix in an object store. It is SCHEME://BUCKET/PREFIX, where "
            "a prefix has letters, digits and ._=+-/; credentials are read from the environment",
        )
    return f"{'s3' if scheme == 's3a' else scheme}://{'/'.join(parts)}"


def hadoop_url(url: str) -> str | None:
    """The URL that Hadoop's connector uses for the prefix; None if it needs more than the URL says.

    >>> hadoop_url("s3://bucket/lake"), hadoop_url("az://container/lake")
    ('s3a://bucket/lake', None)
    """
    scheme, _, rest = url.partition("://")
    if scheme == "az":  # its connector wants the account in the URL
        return None
    return f"{'s3a' if scheme == 's3' else scheme}://{rest}"


def local_path(given: str | os.PathLike[str], name: str) -> str:
    """The path; raises `InvalidInput` for a URL of another file system. `name` is the argument or option.

    >>> local_path("file:///data/lake", "folder"), local_path("data/lake", "folder")
    ('/data/lake', 'data/lake')
    """
    text = os.fspath(given)
    scheme = _SCHEME.match(text)
    if scheme is None or (scheme[1] != "file" and os.path.lexists(text)):
        return text
    rest = text[scheme.end() :]
    if scheme[1] != "file":
        raise InvalidInput(
            name,
            f"{redacted(text):.80} is not on a file system that Fencepost can use: it needs a path that the driver and "
            f"all workers can open, such as a mounted folder. A folder with this name is ./{redacted(text):.80}",
        )
    if not rest:
        raise InvalidInput(name, "a path is needed after file:")
    return "/" + rest.lstrip("/") if rest.startswith("/") else rest


def location_of(given: str | os.PathLike[str], name: str) -> str:
    """The URL of a prefix in an object store, or else the path of a folder.

    >>> location_of("s3a://bucket/lake/", "folder"), location_of("data/lake", "folder")
    ('s3://bucket/lake', 'data/lake')
    """
    return object_url(os.fspath(given), name) or _checked(local_path(given, name), name)


def _checked(path: str, name: str) -> str:
    """The path, unless deltalake would take a part of it for that of a URL, and open another folder."""
    found = _PART_OF_URL.search(path)
    if found is not None:
        raise InvalidInput(name, f"{path!r:.200} has {found[0]}, which deltalake does not read; rename the folder")
    return path


def absolute_location(given: str | os.PathLike[str], name: str) -> str:
    """The same place in a process with another working directory."""
    location = location_of(given, name)
    return location if object_url(location, name) else _checked(str(Path(location).absolute()), name)
