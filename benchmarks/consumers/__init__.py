"""How fast consumers are; `make bench-consumers`."""
