"""Decisions: which devices there are (catalog), what a claim asks for (configs, plan: pure) and the one way up and down (driver, undo).

Knows hardware, files and the API server only through ports.
"""
