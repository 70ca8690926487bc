"""Moving nodes over from a device plugin: what a cluster is like (read), what stands in the way and what to do (pure). Changes nothing."""
