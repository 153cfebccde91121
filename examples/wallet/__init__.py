"""The wallet service: money that is never lost, doubled or overdrawn, over HTTP.

    domain      the rules: events, projections, decisions
    problems    errors, as problem+json
    requests    the bodies that clients send, their limits, and answers as JSON
    routing     calls the function that answers a request
    app         the HTTP interface
    server      the command that starts the server
    page.html   a page that shows wallets live

`python -m examples.wallet --store wallet.db --port 8000` serves it.
"""
