"""`python -m fencepost.demos.wallet --store wallet.db --port 8000`: serve the wallets."""

from .serving import main

if __name__ == "__main__":
    main()
