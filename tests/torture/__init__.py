"""Programs that attack a store at random: interrupts, forks, damaged bytes, malformed input.

Every module of this package, except `__main__` and the tests, is one such program. It defines

    def run(seconds: float, seed: int) -> str

which attacks for about `seconds`, raises an exception that names the seed as soon as a promise is broken,
and otherwise returns one line that says what was tried and how often. `make torture` runs every program
for minutes; `make test` runs each of them for a moment.
"""
