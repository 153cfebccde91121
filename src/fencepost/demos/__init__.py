"""Applications to try Fencepost with, installed with the package.

`fencepost demo wallet` runs the wallet service. Its rules and projections are also imported by the
pipeline example, the notebook and the tests, so there is one copy of them: this one.
"""
