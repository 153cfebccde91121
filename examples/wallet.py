"""The wallet service, under the name `examples.wallet`.

The code is in the package, in `src/fencepost/demos/wallet`, so that `fencepost demo wallet` works in
every installation of Fencepost. This module makes the same files importable as `examples.wallet`,
and `python -m examples.wallet --store wallet.db --port 8000` serves it from a clone.
"""

from fencepost.demos import wallet
from fencepost.demos.wallet.__main__ import main

__path__ = wallet.__path__

if __name__ == "__main__":
    main()
