"""`tftj`, the command of TFTrainingJob for a person's own machine.

Importing this package must stay free of cost, and it must never import TensorFlow or kopf.
"""
