"""Links to source files lead to pages of the site that show them.

The pages link to modules, SQL, proofs and folders of the repository by their paths. In a clone those are
the files; the site has no repository beside it, so each linked file becomes a page with its text, and each
linked folder a page that lists it. A folder with a README.md that is a page of the site leads there. A
link to something that does not exist stays what it was, and Sphinx refuses it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.transforms import SphinxTransform

FOLDER = "_sources_of"  # of the site
LANGUAGES = {
    ".py": "python",
    ".sql": "sql",
    ".html": "html",
    ".v": "coq",
    ".ml": "ocaml",
    ".toml": "toml",
    ".yml": "yaml",
    ".ipynb": "json",
    ".md": "markdown",
}
IMAGES = {".svg", ".png"}


class SourceLinks(SphinxTransform):
    """Turns references to files that are no pages into references to the pages that show them."""

    default_priority = 5

    def apply(self, **_: Any) -> None:
        for node in list(self.document.findall(_is_open)):
            path = self._path(node["reftarget"])
            if path is None or path.suffix in IMAGES:
                continue
            readme = path / "README.md"
            if path.is_dir() and (docname := self.env.path2doc(readme)) in self.env.found_docs and readme.exists():
                node.attributes.update(refdomain="doc", reftarget=docname, reftargetid=None)
                continue
            name = path.relative_to(self.env.srcdir).as_posix()
            linked(self.env).setdefault(self.env.docname, set()).add(name)
            address = os.path.relpath(f"{FOLDER}/{name}.html", os.path.dirname(self.env.docname))
            node.replace_self(nodes.reference("", "", *node.children, internal=True, refuri=address))

    def _path(self, target: str) -> Path | None:
        """What the target names, if it is in the repository."""
        path = Path(self.env.relfn2path(target.partition("#")[0], self.env.docname)[1])
        return path if path.exists() and path.is_relative_to(self.env.srcdir) else None


def _is_open(node: nodes.Node) -> bool:
    if isinstance(node, addnodes.download_reference):
        return True
    return isinstance(node, addnodes.pending_xref) and node["reftype"] == "myst" and node["refdomain"] is None


def linked(env: BuildEnvironment) -> dict[str, set[str]]:
    """By page, the files and folders that it links to."""
    if not hasattr(env, "fencepost_sources"):
        env.fencepost_sources = {}  # type: ignore[attr-defined]
    found: dict[str, set[str]] = env.fencepost_sources
    return found


def forget(app: Sphinx, env: BuildEnvironment, docname: str) -> None:
    linked(env).pop(docname, None)


def pages(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    """A page for each linked file and folder, and for what is in those folders."""
    root = Path(app.srcdir)
    for path in sorted(_closed({root / name for names in linked(app.env).values() for name in names})):
        name = path.relative_to(root).as_posix()
        body = _listing(path) if path.is_dir() else _text(app, path)
        heading = f"<h1><code>{escape(name)}</code></h1>"
        yield f"{FOLDER}/{name}", {"title": name, "body": heading + body}, "page.html"


def _closed(paths: set[Path]) -> set[Path]:
    found = set(paths)
    for path in paths:
        if path.is_dir():
            found |= _closed(set(_children(path)))
    return found


def _children(folder: Path) -> list[Path]:
    hidden = {"__pycache__", "_build", "results"}
    children = (child for child in folder.iterdir() if child.name not in hidden and not child.name.startswith("."))
    return sorted(child for child in children if child.is_dir() or child.suffix in LANGUAGES)


def _listing(folder: Path) -> str:
    rows = (
        f'<li><a href="{folder.name}/{child.name}.html"><code>{child.name}</code></a></li>'
        for child in _children(folder)
    )
    return f"<ul>{''.join(rows)}</ul>"


def _text(app: Sphinx, path: Path) -> str:
    highlighter = app.builder.highlighter  # type: ignore[attr-defined]
    return str(highlighter.highlight_block(path.read_text(), LANGUAGES.get(path.suffix, "text"), force=True))


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_transform(SourceLinks)
    app.connect("env-purge-doc", forget)
    app.connect("html-collect-pages", pages)
    return {"parallel_read_safe": False, "parallel_write_safe": True}
