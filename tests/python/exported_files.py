"""The files of an export, for a comparison of two exports."""

from __future__ import annotations

import json
from pathlib import Path


def exported_files(folder: Path) -> dict[str, bytes]:
    """Return contents by name.

    In the model card the commands are removed, because they contain folder names, and the hash of the statement. In the
    statement the code is removed, because a test and its child processes may load different builds of the core.
    """
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    if "README.md" in files:
        lines = files["README.md"].splitlines()
        dropped = (b"launch.py", b"`provenance.json`")
        files["README.md"] = b"\n".join(line for line in lines if not any(one in line for one in dropped))
    if "provenance.json" in files:
        statement = json.loads(files["provenance.json"])
        for sections in (statement["predicate"], statement["predicate"]["sections"]):
            del sections["code"]
        files["provenance.json"] = json.dumps(statement).encode()
    return files
