"""The files of an export, for a comparison of two exports."""

from __future__ import annotations

from pathlib import Path


def exported_files(folder: Path) -> dict[str, bytes]:
    """Return contents by name. In the model card the commands are removed, because they contain folder names."""
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    if "README.md" in files:
        lines = files["README.md"].splitlines()
        files["README.md"] = b"\n".join(line for line in lines if b"launch.py" not in line)
    return files
