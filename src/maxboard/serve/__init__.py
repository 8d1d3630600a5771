"""Submits with ranks, reads and the live page over HTTP. ``api`` puts the parts together."""
