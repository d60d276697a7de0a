"""`python -m mudd_core`: the command line of launch.py."""

import sys

from mudd_core.cli import main

sys.exit(main())
