"""The modules that run in the user's Python interpreter, where they are loaded as the package `_tftraining`.

`pythonpath/sitecustomize.py` loads `hooks` in each Python process of the program; `zygote` is the warm interpreter.
These modules import the standard library and each other only, by relative imports, and must never disturb the user's
code.
"""
