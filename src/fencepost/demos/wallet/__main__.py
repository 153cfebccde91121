"""`python -m fencepost.demos.wallet --store wallet.db --port 8000`: serve the wallets."""

from __future__ import annotations

import argparse

from fencepost.address import MEMORY, Address

from .serving import serve


def main() -> None:
    parser = argparse.ArgumentParser(prog=f"python -m {__package__}", description="Serve wallets over HTTP.")
    parser.add_argument("--store", default="wallet.db", help="address of the store: a path, memory:, postgresql://...")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--workers", type=int, default=1, help="processes that serve; they share the store")
    parser.add_argument("--quiet", action="store_true", help="do not print a line for each request")
    options = parser.parse_args()
    if Address.parse(options.store).kind is MEMORY and options.workers > 1:
        parser.error("--workers: each process would have a memory: store of its own; name a file or a database")
    serve(**vars(options))


if __name__ == "__main__":
    main()
