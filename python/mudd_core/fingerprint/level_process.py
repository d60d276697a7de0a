"""The child process of fingerprint.levels: it runs a saved model on a saved batch, and writes what an observer sees."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from mudd_core.engine.model import Model
from mudd_core.fingerprint.levels import BATCH, LINES, MODEL, VALUES, read_arrays, write_arrays
from mudd_core.fingerprint.lines import Key
from mudd_core.fingerprint.observed import Observed
from mudd_core.fingerprint.record import line_json


def main() -> None:
    """Read the request from standard input, write the files, and print the loss."""
    asked = json.loads(sys.stdin.buffer.read())
    folder = Path(asked["folder"])
    model = Model.load(folder / MODEL)
    model.normalize = asked["normalize"]
    batch = read_arrays(folder / BATCH)
    seen = Observed(model, batch if "targets" in batch else batch["inputs"])
    if keys := [Key(*key) for key in asked["keys"]]:
        values = seen.values(keys)
        write_arrays(folder / VALUES, {str(at): values[key] for at, key in enumerate(keys)})
    else:
        rows = (json.dumps(line_json(line)) + "\n" for line in seen.lines())
        (folder / LINES).write_text("".join(rows))
    print(json.dumps({"loss": repr(seen.loss)}))
