"""The configuration of a launcher, and the environment that the launcher computes from it for the program."""
