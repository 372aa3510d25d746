"""The server: an engine at an address, for programs (JSON, Arrow, events, metrics) and people (the console).

    app        the routes, put together            access     tokens, cookies, rights
    guard      what every request passes           faults     errors as JSON
    reading    GET routes                          changing   POST routes
    changes    answers as they change, as events   live       the engine, looked at once for all who ask
    listing    thousands of queries, by pages      archives   probes by key, scans
    metrics    Prometheus                          process    the listening process, TLS, stopping

Nothing here computes answers.
"""
