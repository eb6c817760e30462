"""`python -m folkman` is `folkman`."""

from folkman.cli import main

main()
