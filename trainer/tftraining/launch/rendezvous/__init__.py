"""The network between the launchers of a gang: the chief's server, each member's client, and their protocol."""
