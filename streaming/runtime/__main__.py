"""`python -m streaming.runtime [SET…]`: fetches the jars ahead of time."""

import sys

from streaming.runtime.jars import main

sys.exit(main(sys.argv[1:]))
