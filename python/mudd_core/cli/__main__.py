"""`python -m mudd_core.cli`."""

import sys

from mudd_core.cli import main

sys.exit(main())
