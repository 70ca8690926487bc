"""Promises to users (opaque configuration) and from the kubelet (gRPC contracts). Knows nothing of the driver."""
