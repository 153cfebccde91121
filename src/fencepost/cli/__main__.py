"""Run the `fencepost` command as `python -m fencepost.cli`, without the installed script."""

from .app import main

main()
