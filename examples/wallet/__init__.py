"""The wallet service: money that is never lost, doubled or overdrawn, over HTTP.

    domain      what happens to wallets, and the rules: events, projections, decisions
    problems    what can go wrong, as problem+json
    requests    what clients send, and what it must look like
    routing     how a request gets to the function that answers it
    app         the HTTP interface
    serving     how it is run
    page.html   a page that shows wallets live

`python -m examples.wallet --store wallet.db --port 8000` serves it.
"""
