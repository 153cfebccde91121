"""How `make docs` builds the documentation: Sphinx over the Markdown files where they are.

The source folder is the root of the repository, so that README.md, docs/ and the other pages link to each
other with the paths that also work in a clone. Nothing is fetched, neither here nor by the pages.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

project = "Fencepost"
release = tomllib.loads(Path(__file__).parents[2].joinpath("pyproject.toml").read_text())["project"]["version"]
copyright = "the Fencepost authors, Apache License 2.0"

extensions = ["myst_parser", "sphinx_copybutton", "navigation", "sources"]
root_doc = "docs/README"
include_patterns = [
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "docs/**.md",
    "examples/**.md",
    "models/README.md",
    "proofs/README.md",
]
exclude_patterns = [".*", "build", "dist", "docs/site", "src", "tests", "benchmarks", "**/__pycache__"]
nitpicky = True

# Headings get the anchors that code hosts give them, and a link to one that does not exist is an error.
myst_heading_anchors = 4
myst_enable_extensions = ["strikethrough"]

# Sessions are copied without their prompt and their output.
copybutton_prompt_text = "$ "
copybutton_only_copy_prompt_lines = True
copybutton_exclude = ".linenos, .gp"

html_theme = "furo"
html_title = f"Fencepost {release}"
html_static_path = ["static"]
html_css_files = ["fencepost.css"]
html_show_sphinx = False
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {"navigation_with_keys": True}
pygments_style = "tango"
pygments_dark_style = "monokai"
