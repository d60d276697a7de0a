"""The files of an export, to compare two."""

from __future__ import annotations

from pathlib import Path


def exported_files(folder: Path) -> dict[str, bytes]:
    """Content by name; of the model card without its commands, which name the folders."""
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    if "README.md" in files:
        lines = files["README.md"].splitlines()
        files["README.md"] = b"\n".join(line for line in lines if b"launch.py" not in line)
    return files
