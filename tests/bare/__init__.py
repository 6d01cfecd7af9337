"""A bare Debian to run a command in, so that nothing that is installed on this machine goes unnoticed.

CI=true python3.11 -m tests.bare COMMAND…      (what .ci/run does)
"""
