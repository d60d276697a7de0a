"""`python -m mudd_core.preprocess`: the command `preprocess`, under the name that jax-lm-training gives it."""

import sys

from mudd_core.cli import main

if __name__ == "__main__":
    sys.argv.insert(1, "preprocess")
    sys.exit(main())
