"""Measurements of the product beside floors that are measured in the same run. They print, and judge nothing."""
