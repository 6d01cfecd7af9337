"""The launcher: PID 1 of a training container, in front of the user's command.

Read it in this order: `settings` (what it is told), `member` (what every launcher does), `coordinator` (what the one
of the chief decides, purely) with `peer`, `ledger`, `incident`, `watchdog` and `verdict`, `rendezvous` and `wire` (how
the two talk), `status` and `server` (what it shows), `launcher` (how the parts fit); `program` is the user's process.

It must never import anything but the standard library of Python 3.9: it is copied into images that have nothing else.
"""
