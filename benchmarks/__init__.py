"""Measurements of the product beside floors from the same run. The benchmarks print figures and never judge them."""
