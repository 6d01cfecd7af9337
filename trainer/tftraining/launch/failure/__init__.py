"""The record of a failure, and the action that follows: restart rules, the restart budget, the result. Pure.

The operator and `tftj run` use the same modules where no launcher is left to decide.
"""
