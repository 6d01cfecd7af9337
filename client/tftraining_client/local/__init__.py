"""Runs a TFTrainingJob without a cluster: the pods that the operator would create, as processes of this machine."""
