"""What a store does for every engine, written once.

engine          what an engine must offer, and the capabilities that it may declare
verdicts        the verdict on each append of a batch
group_commit    concurrent requests run as one batch by one of the callers
arguments       checks the arguments of the store's methods
restore         checks the events of a restore
readings        readings: pages of events, and the position up to which they are complete
router          which subscriptions an event goes to
subscriptions   stored events, then every new one
address         which store an address names
options         the options of `open` for each kind of store
redaction       addresses without their secrets
owner           whether a store may be used: not after `close`, not in a forked child
interrupts      signals, held back while a store changes its state; every wait of the package
observers       callables that are told what happens in a store
durable_file    files that appear complete and durable, or not at all
"""
