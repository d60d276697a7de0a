"""`python -m mudd_core.train`: training by the flags of jax-lm-training."""

import sys

from mudd_core.cli import main

if __name__ == "__main__":
    sys.argv.insert(1, "jax_lm.train")
    sys.exit(main())
