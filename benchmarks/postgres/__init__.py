"""Fencepost on PostgreSQL beside its peers, on one server and in one run."""
