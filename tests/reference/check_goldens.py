"""Check the references of this folder against results of the original programs.

    python tests/reference/check_goldens.py FOLDER

FOLDER contains results of transformers (`hf`), of the MUDDFormer authors' code (`muddformer`), of the TokenFormer
authors' code (`tokenformer`) and of mu-Transformer (`mup`); it is not part of the repository. The program prints the
largest error of each quantity next to its tolerance, and exits with code 1 if one is over.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from reference.golden_hf import check_hf
from reference.golden_muddformer import check_muddformer
from reference.golden_mup import check_mup
from reference.golden_report import failures
from reference.golden_tokenformer import check_tokenformer


def main() -> int:
    """Run every check on the folder named on the command line."""
    if len(sys.argv) != 2:
        print(__doc__)
        return 2
    folder = Path(sys.argv[1])
    for name in ("llama_gqa", "mixtral"):
        check_hf(folder / "hf", name)
    check_muddformer(folder / "muddformer/llama_plain.npz")
    check_muddformer(folder / "muddformer/mudd_plain.npz")
    check_tokenformer(folder / "tokenformer/tokenformer_plain.npz")
    check_tokenformer(folder / "tokenformer/gpt2_plain.npz")
    check_mup(folder / "mup/base_w32.npz")
    print("all within tolerance" if not failures else f"{len(failures)} over tolerance")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
