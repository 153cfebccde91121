"""Applications to try Fencepost with, for who has installed it: `fencepost demo wallet`.

They are the examples of the source tree, which is where to read them.
"""
