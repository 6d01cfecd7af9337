"""Keras 3 for gangs: what keeps `fit`, `evaluate` and `predict` from training two or more workers is put right.

docs/keras3.md has the causes by number. Nothing changes without a MultiWorkerMirroredStrategy of several workers. No
module of this package may import Keras or TensorFlow: the program has imported them.
"""
