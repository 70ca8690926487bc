"""Times and sizes of the agent against a real API server, as ratios to a floor measured in the same run.

Nothing here is a test: machines differ, so bars are shown and never asserted.
"""
