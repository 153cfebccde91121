"""For all tests: Hypothesis takes its time, and tries as much as fits into a run that is made often."""

from hypothesis import settings

settings.register_profile("often", deadline=None, max_examples=60)
settings.load_profile("often")
