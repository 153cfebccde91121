"""What only the tests, benchmarks and examples of this repository need; the wheel does not contain it.

Tools for authors of engines and services are in `fencepost.testing`. A tool belongs here if it knows how one of
our engines works inside (`disk`), if it needs a package that is only installed for development (`postgres`), or if
it is a workload of ours (`races`).
"""
