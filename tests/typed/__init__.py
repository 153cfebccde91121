"""What type checkers see of the decisions API: samples that are right, and samples that are wrong.

`samples/right.py` must pass both mypy --strict and pyright in strict mode. In `samples/wrong.py` each
line that a checker must refuse says so, with the codes of the errors:

    withdraw(store, Balance("w1"), amount="5")  # wrong: mypy[call-overload] pyright[reportArgumentType]

Errors on other lines, other codes, and marks without an error are all failures. `make check` runs
`python -m tests.typed`. The code of docs/tutorial.md must pass as well.
"""
