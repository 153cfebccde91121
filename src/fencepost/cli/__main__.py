"""`python -m fencepost.cli`, where the `fencepost` script is not installed."""

from .app import main

main()
