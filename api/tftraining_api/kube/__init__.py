"""Requests to the API server, through the official client's transport."""
