"""Build the documentation site, from copies of its sources in build/site-sources, into build/site.

./run site                         installs what is missing, then runs this
python docs/site/site_build.py     needs the packages of the extra `site`
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import time
from pathlib import Path

from site_notebooks import MissingOutputError
from site_sources import ROOT, SiteError, written

HERE = Path(__file__).resolve().parent
_SEARCH = HERE / "search.md"
_PACKAGES = ("sphinx", "myst_parser", "furo")
_INSTALL = "./run site installs it; so does: pip install 'sphinx>=8.2' 'myst-parser>=4' 'furo>=2024.8'"


def build(sources: Path, target: Path) -> int:
    """Build the site; return the exit code. Both folders are emptied first."""
    from sphinx.cmd.build import main as sphinx

    for folder in (sources, target):
        shutil.rmtree(folder, ignore_errors=True)
    written(sources)
    shutil.copy(_SEARCH, sources)
    doctrees = sources.with_name(f"{sources.name}-doctrees")
    shutil.rmtree(doctrees, ignore_errors=True)
    options = ["-b", "html", "-W", "--keep-going", "-q", "-j", "2", "-d", str(doctrees)]
    return sphinx([*options, "-c", str(HERE), str(sources), str(target)])


def main(words: list[str]) -> int:
    """Build into FOLDER/site and print how long it took."""
    for package in _PACKAGES:
        if importlib.util.find_spec(package) is None:
            expected = f"site: package {package}: expected it to be installed, found none; {_INSTALL}"
            print(expected, file=sys.stderr)
            return 2
    start = time.perf_counter()
    folder = Path(words[0]) if words else ROOT / "build"
    try:
        code = build(folder / "site-sources", folder / "site")
    except (SiteError, MissingOutputError) as error:
        print(f"site: {error}", file=sys.stderr)
        return 2
    if code == 0:
        page = os.path.relpath(folder / "site" / "index.html")
        print(f"site: {page}, built in {time.perf_counter() - start:.0f} s")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
