"""Which small changes of a module no test notices. `python -m tests.mutation --help` tells how it is asked."""
