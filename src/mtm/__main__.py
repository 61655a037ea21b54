"""`python -m mtm` is the same as the command `mtm`."""

import sys

from mtm.cli import main

sys.exit(main())
