"""For all tests: Hypothesis takes its time, and tries as much as fits into a run that is made often."""

import signal

from hypothesis import settings

settings.register_profile("often", deadline=None, max_examples=60)
settings.load_profile("often")

# What a shell runs in the background ignores Ctrl-C, and so do its children; some tests send it to theirs.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
