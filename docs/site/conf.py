"""The settings of Sphinx; site_build.py calls it with the sources in build/site-sources."""

from __future__ import annotations

import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

project = "mudd_core"
author = "The mudd_core maintainers"
copyright = "the mudd_core maintainers"
_init = (HERE.parents[1] / "python" / "mudd_core" / "__init__.py").read_text(encoding="utf-8")
version = release = re.search(r'^__version__ = "(.*)"', _init, re.MULTILINE)[1]  # type: ignore[index]

extensions = ["myst_parser", "site_search"]
html_theme = "furo"
html_title = f"mudd_core {release}"
html_static_path = [str(HERE / name) for name in ("search.js", "site.css")]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_domain_indices = html_use_index = False
myst_heading_anchors = 4
suppress_warnings = ["myst.header"]  # notebooks and generated tables skip a level of headings
pygments_style = "tango"
nitpicky = True
