"""The code of this process, as hashes: version, extension modules, compiler and sources."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import mudd_core
from mudd_core import _core
from mudd_core.base.types import JsonObject
from mudd_core.run.records.machine import CHECKOUT, commit_of, modules_sha256

# The compiler writes its name into the section .comment of every module.
_COMPILER = re.compile(rb"GCC: \([ -'*-~]{0,80}\) [0-9.]+|clang version [0-9.]+")
_CPP = (".h", ".cc", ".inc", ".cmake", ".txt")


def code_facts() -> JsonObject:
    """Return the version, and hashes of modules and sources. A checkout also has its commit and its C++ sources."""
    facts: JsonObject = {"version": mudd_core.__version__, "modules": modules_sha256()}
    if found := _COMPILER.search(Path(_core.__file__).read_bytes()):
        facts["compiler"] = found[0].decode()
    package = Path(mudd_core.__file__).parent
    facts["python"] = tree_sha256(package, [file for file in package.rglob("*.py") if file.is_file()])
    cpp = CHECKOUT / "cpp"
    if (CHECKOUT / "CMakeLists.txt").is_file() and cpp.is_dir():
        files = [file for file in cpp.rglob("*") if file.suffix in _CPP and file.is_file()]
        facts["cpp"] = tree_sha256(CHECKOUT, [*files, CHECKOUT / "CMakeLists.txt"])
        if commit := commit_of(CHECKOUT):
            facts["commit"] = commit
    return facts


def tree_sha256(root: Path, files: list[Path]) -> str:
    """Return a SHA-256 over the relative path and the content of each file, in the order of the paths."""
    digest = hashlib.sha256()
    for name, file in sorted((file.relative_to(root).as_posix(), file) for file in files):
        digest.update(f"{name}\0".encode() + hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()
