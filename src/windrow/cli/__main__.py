"""`python -m windrow.cli`: the command line without its script."""

import sys

from windrow.cli import main

sys.exit(main())
