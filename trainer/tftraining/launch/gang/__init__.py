"""The decisions of the chief's launcher about the gang: its members, its rounds, and the answer to an incident. Pure.

`coordinator` handles the members' frames; the clock is an argument.
"""
