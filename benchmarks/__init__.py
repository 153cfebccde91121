"""Measurements against peers, in one run on one machine, printed as ratios."""
