"""Run pytest once for each instruction set of mudd_core and of the reference libraries: `.venv/bin/python
tests/isa_matrix.py`.

Every test must pass on every CPU, whatever level mudd_core, PyTorch, oneDNN, MKL and OpenBLAS choose on it. Arguments
are passed to pytest; without arguments the whole suite runs, once for each line of the table below.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from pathlib import Path

OURS = (
    "portable",
    *(["avx2"] if platform.machine() == "x86_64" else []),
    "",
)  # "": the best that the CPU has

# Level of the reference libraries: the variables that cap them at it.
REFERENCES: dict[str, dict[str, str]] = {
    "lowest": {
        "ATEN_CPU_CAPABILITY": "default",
        "ONEDNN_MAX_CPU_ISA": "SSE41",
        "MKL_ENABLE_INSTRUCTIONS": "SSE4_2",
        "OPENBLAS_CORETYPE": "Nehalem",
    },
    "avx2": {
        "ATEN_CPU_CAPABILITY": "avx2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
        "OPENBLAS_CORETYPE": "Haswell",
    },
    "highest": {},
}


def main(arguments: list[str]) -> int:
    """Run all combinations; return 0 if every run of pytest passed."""
    held = {name for variables in REFERENCES.values() for name in variables} | {"MUDD_MAX_ISA"}
    free = {name: value for name, value in os.environ.items() if name not in held}
    failed = 0
    for ours in OURS:
        for references, variables in REFERENCES.items():
            level = {"MUDD_MAX_ISA": ours} if ours else {}
            begin = time.monotonic()
            run = subprocess.run(
                [sys.executable, "-m", "pytest", "--durations=0", "--durations-min=1e9", *arguments],
                cwd=Path(__file__).parents[1],
                env={**free, **variables, **level},
                capture_output=True,
                text=True,
            )
            failed += run.returncode != 0
            lines = run.stdout.splitlines() or run.stderr.splitlines() or ["no output"]
            print(
                f"{ours or 'highest':8} {references:7} {time.monotonic() - begin:4.0f} s  {lines[-1]}",
                flush=True,
            )
            for line in lines if run.returncode else []:
                if line.startswith(("FAILED", "ERROR", "E  ")):
                    print(f"    {line}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
