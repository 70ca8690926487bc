"""Composition root: the only room that knows everyone. Starts in order, stops in reverse."""
