"""The launcher: PID 1 of a training container, in front of the user's command.

Reading order: `settings` (its configuration), `member` (the client that every launcher runs), `coordinator` (the
decisions of the chief's launcher; pure) with `peer`, `ledger`, `incident`, `watchdog` and `verdict`, `rendezvous` and
`wire` (the protocol), `status` and `server` (the HTTP pages), `launcher` (assembly); `program` is the user's process.

It must import only the standard library of Python 3.9: it is copied into images that may have nothing else.
"""
