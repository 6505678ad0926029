"""ddp_sweep --project: what a run would do on other numbers of ranks and other links.

    main        arguments, table and JSON
    places      which numbers of ranks
    ledger      what run.json says of a step: its parts, buckets, links, spread
    links       the curves of links, and what strategies cost over them (ddp_bench --costs)
    replay      the steps, event by event
    curves      the curves of a sweep, for its page

The method, and how far it was right: docs/projection.md.
"""
