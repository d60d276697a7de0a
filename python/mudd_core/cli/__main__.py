"""`python -m mudd_core.cli`."""

import sys

from mudd_core.cli.entry import main

sys.exit(main())
