"""The tree of the site, which the start page does not show itself.

docs/README.md leads readers by links that work in any viewer of Markdown. What Sphinx needs in addition,
the tree of pages for the sidebar, is in navigation.md and is added to that page when it is read. An
index.html at the top of the site leads to it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

TREE = Path(__file__).with_name("navigation.md")
RECORDS = """
```{toctree}
:hidden:
:glob:

0*
```
"""
REDIRECT = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Fencepost</title>
<meta http-equiv="refresh" content="0; url={start}"><link rel="canonical" href="{start}"></head>
<body><a href="{start}">The documentation of Fencepost</a></body></html>
"""


def add_tree(app: Sphinx, docname: str, source: list[str]) -> None:
    if docname == app.config.root_doc:
        source[0] += "\n" + TREE.read_text()
        app.env.note_dependency(str(TREE), docname=docname)
    if docname == "docs/decisions/README":
        source[0] += RECORDS


def write_index(app: Sphinx, error: Exception | None) -> None:
    if error is None and app.builder.name == "html":
        Path(app.outdir, "index.html").write_text(REDIRECT.format(start=f"{app.config.root_doc}.html"))


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("source-read", add_tree)
    app.connect("build-finished", write_index)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
