"""A TFTrainingJob run on this machine, with no cluster: the operator's own pods, played by a very small kubelet."""
