"""The launcher: PID 1 of a training container, in front of the user's command.

Reading order: `config/settings.py` (its configuration), `rendezvous/client.py` (the client that every launcher runs),
`rendezvous/program_control.py` (the chief's orders to the program), `gang/coordinator.py` (the decisions of the chief's
launcher) with the rest of `gang/` and `failure/`, `rendezvous/server.py` and `rendezvous/protocol.py`, `http/` (the
pages), `launcher.py` (assembly). `process/` runs the user's program; the modules of `in_user_process/` run inside it.
`gang/`, `failure/`, `progress.py`, `roles.py` and `config/settings_and_defaults.py` are pure: no clock, file or socket.

It must import only the standard library of Python 3.9: it is copied into images that may have nothing else.
"""
