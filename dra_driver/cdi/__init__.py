"""CDI specs: rendering (pure) and the store of atomic files. Knows edits, not GPUs."""
