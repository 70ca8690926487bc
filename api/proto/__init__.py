"""The kubelet's gRPC contracts: our own text of them, and in `pb` the code generated from it (`generate.py`)."""
