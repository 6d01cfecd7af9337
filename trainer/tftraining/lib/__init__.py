"""The library of the example programs: data, input pipeline, train step, loops, checkpoints, training log, evaluator.

Only the stock image has these modules. A program in another image gets `tftraining.report`, `tftraining.paths` and
`tftraining.cluster`, which the launcher brings along.
"""
