"""End to end: the driver on a real Kubernetes. Nothing here is imported by the driver itself."""
