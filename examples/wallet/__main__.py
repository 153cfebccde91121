"""`python -m examples.wallet --store wallet.db --port 8000`: serve the wallets."""

from .server import main

if __name__ == "__main__":
    main()
