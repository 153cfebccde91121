"""A soak test of consumers: random kills, suspensions, pauses and restarts of real processes; `make soak`."""
