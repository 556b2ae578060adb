"""`python -m tangens` is the `tangens` command."""

import sys

from tangens.cli import main

if __name__ == "__main__":
    sys.exit(main())
