"""`python -m mudd_core`: the command line of launch.py."""

import sys

from mudd_core.cli.entry import main

sys.exit(main())
