"""A cluster of kind: nodes are containers of Docker, and images come from a registry or are built here.

The second implementation of `e2e.cluster`'s interface. Docker is the machine's own where it answers; where the caller says
so (DRA_PRIVATE_DOCKER=1) one of its own is fetched, run below one directory and ended without a trace.
"""
