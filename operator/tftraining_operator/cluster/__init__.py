"""All access to the API server and to the clock. Never decides what a job needs.

Which of several jobs goes first is decided here, because it takes all of them: quota_admission, storage_admission.
"""
