"""`tftj`, the command that runs a TFTrainingJob on the user's own machine.

Importing this package must stay cheap, and must never import TensorFlow or kopf.
"""
