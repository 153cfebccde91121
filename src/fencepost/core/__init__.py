"""What a store does for every engine, written once.

engine          what an engine must offer, and the capabilities that it may declare
judging         the verdict on each append of a batch
batching        concurrent requests run as one batch by one of the callers
arguments       checks the arguments of the store's methods
readings        readings: pages of events, and the position up to which they are complete
routing         which subscriptions an event goes to
subscriptions   stored events, then every new one
service         all of it together, beneath `EventStore`
async_service   the same for asyncio, beneath `AsyncEventStore`
"""
