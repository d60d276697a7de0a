"""Collect the sources of the site: pages, notebooks and examples, with links that lead to pages of the site."""

from __future__ import annotations

import ast
import posixpath
import re
from dataclasses import dataclass
from pathlib import Path

from site_diagrams import drawn
from site_notebooks import markdown

ROOT = Path(__file__).resolve().parents[2]
INDEX = "docs/index.md"
_TOP = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "bench/README.md")
_CODE_OR_LINK = re.compile(r"^ *```.*?^ *```|`[^`]+`|\]\(([^)\s]+)\)", re.DOTALL | re.MULTILINE)
_COMMENT = re.compile(r"^<!--.*?-->\n", re.DOTALL | re.MULTILINE)
_CONTENTS = re.compile(r"^## (.*)\n((?:(?!## ).*\n?)*)", re.MULTILINE)
_LINK = re.compile(r"\]\(([^)#\s]+)")
_LANGUAGES = {".py": "python", ".sh": "sh", ".json": "json", ".yml": "yaml", ".toml": "toml"}


class SiteError(ValueError):
    """A source of the site that cannot be built, by its name."""


@dataclass(frozen=True)
class Source:
    """A page: its path in the repository ("docs/data.md"), its path in the site ("data.md"), its Markdown."""

    path: str
    page: str
    text: str


def sources() -> list[Source]:
    """Return every page of the site with the links that its author wrote."""
    found = [_read(path, _page_of(path)) for path in _pages()]
    for file in sorted((ROOT / "notebooks").glob("*.ipynb")):
        path = f"notebooks/{file.name}"
        found.append(Source(path, f"notebooks/{file.stem}.md", markdown(path, file.read_text("utf-8"))))
    found += [_example(file) for file in sorted((ROOT / "examples").glob("*.py"))]
    linked = {path for source in found for path in _linked(source.path, source.text)}
    folders = {posixpath.dirname(source.path): posixpath.dirname(source.page) for source in found}
    pages = {source.page for source in found}
    for path, folder in folders.items():
        if path in linked and f"{folder}/index.md" not in pages:
            found.append(_folder(folder, found))
    return found


def written(folder: Path) -> None:
    """Write the sources into a folder, as Sphinx reads them.

    Raises SiteError for a link that leads nowhere and for a page that docs/index.md does not reach.
    """
    pages = sources()
    places = {source.path: source.page for source in pages}
    places |= {posixpath.dirname(path): page for path, page in places.items() if page.endswith("/index.md")}
    index = next(source for source in pages if source.path == INDEX)
    contents = _contents(index.text, places)
    direct = {page for part in contents.values() for page in part}
    for source in pages:
        text = _relinked(source, places, folder)
        if source is index:
            text += "".join(_tree(part, caption) for caption, part in contents.items())
        elif source.page.endswith("/index.md"):
            text += _tree(_pages_in(posixpath.dirname(source.page), places, direct), "")
        _write(folder / source.page, drawn(_COMMENT.sub("", text)))
    _check_reached(pages, folder)


def _pages() -> list[str]:
    docs = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))
    return [*(path for path in docs if not path.startswith("docs/site/")), *_TOP]


def _page_of(path: str) -> str:
    page = path.removeprefix("docs/")
    return page.replace("/README.md", "/index.md")


def _read(path: str, page: str) -> Source:
    text = (ROOT / path).read_text(encoding="utf-8")
    if path == "README.md":  # the first page of the site has the same title
        text = text.replace("# mudd_core\n", "# Overview\n", 1)
    return Source(path, page, text)


def _example(file: Path) -> Source:
    """The page of an example: the first sentence of its docstring, then the whole file."""
    code = file.read_text(encoding="utf-8")
    about = ast.get_docstring(ast.parse(code)) or ""
    text = f"# examples/{file.name}\n\n{about}\n\n```python\n{code}```\n"
    return Source(f"examples/{file.name}", f"examples/{file.stem}.md", text)


def _folder(folder: str, found: list[Source]) -> Source:
    """A page that lists the pages of a folder by their titles."""
    inside = [source for source in found if posixpath.dirname(source.page) == folder]
    lines = [f"- [{_title(source.text)}]({posixpath.basename(source.path)})" for source in inside]
    titles = {"maths": "Formulas", "coming-from": "Coming from other programs"}
    title = titles.get(folder, folder.capitalize())
    parent = posixpath.dirname(inside[0].path)
    return Source(f"{parent}/index.md", f"{folder}/index.md", f"# {title}\n\n" + "\n".join(lines) + "\n")


def _linked(path: str, text: str) -> list[str]:
    """The files and folders of the repository that a page links."""
    return [
        posixpath.normpath(posixpath.join(posixpath.dirname(path), target)) for target in _LINK.findall(text)
    ]


def _title(text: str) -> str:
    match = re.search(r"^# (.*)", text, re.MULTILINE)
    return match[1] if match else ""


def _relinked(source: Source, places: dict[str, str], folder: Path) -> str:
    """The text of a page with each link to a file of the repository as a link to its page in the site."""
    here = posixpath.dirname(source.page)

    def relinked(match: re.Match[str]) -> str:
        target = match[1]
        if target is None or "://" in target or target.startswith(("#", "mailto:")):
            return match[0]
        name, mark, anchor = target.partition("#")
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source.path), name))
        page = places.get(path) or _file_page(source.path, path, folder)
        return f"]({posixpath.relpath(page, here or '.')}{mark}{anchor})"

    return _CODE_OR_LINK.sub(relinked, source.text)


def _file_page(linking: str, path: str, folder: Path) -> str:
    """Copy a picture, or write the page of another file of the repository; return its path in the site."""
    file = ROOT / path
    if not file.is_file():
        raise SiteError(f"{linking}: link to {path}: expected a file or a folder with a page, found none")
    if file.suffix in (".svg", ".png"):
        target = folder / "pictures" / file.name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.read_bytes())
        return f"pictures/{file.name}"
    page = f"files/{path.replace('.', '-')}.md"
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".md":
        title, text = _title(text) or path, text.partition("\n")[2]
        _write(folder / page, f"---\norphan: true\n---\n\n# {title}\n{text}")
    else:
        language = _LANGUAGES.get(file.suffix, "text")
        _write(folder / page, f"---\norphan: true\n---\n\n# {path}\n\n````{language}\n{text}````\n")
    return page


def _contents(index: str, places: dict[str, str]) -> dict[str, list[str]]:
    """The pages that docs/index.md links, by its headings; each page under the first one that has it."""
    found: dict[str, list[str]] = {}
    for heading, part in _CONTENTS.findall(index):
        before = {page for pages in found.values() for page in pages}
        linked = (places[path] for path in _linked(INDEX, part) if path in places)
        found[heading] = [page for page in dict.fromkeys(linked) if page not in before]
    return found


def _tree(pages: list[str], caption: str) -> str:
    if not pages:
        return ""
    named = f":caption: {caption}\n" if caption else ""
    return f"\n```{{toctree}}\n:hidden:\n{named}\n" + "\n".join(f"/{page}" for page in pages) + "\n```\n"


def _pages_in(folder: str, places: dict[str, str], direct: set[str]) -> list[str]:
    """The pages of a folder that docs/index.md does not link."""
    inside = {page for page in places.values() if posixpath.dirname(page) == folder}
    return sorted(page for page in inside - direct if not page.endswith("/index.md"))


def _check_reached(pages: list[Source], folder: Path) -> None:
    listed = "".join((folder / source.page).read_text(encoding="utf-8") for source in pages)
    reached = {line[1:] for line in re.findall(r"^/\S+\.md$", listed, re.MULTILINE)}
    if lost := sorted({source.page for source in pages} - reached - {"index.md"}):
        raise SiteError(f"{INDEX}: expected a link to every page, found none to {', '.join(lost)}")


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
