"""The documentation site: its reference pages, made from the code, and its sources as zensical takes them."""
