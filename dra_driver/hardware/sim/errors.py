"""What can go wrong with a simulated machine, apart from what it does on command."""


class SimulationError(Exception):
    """The simulated machine cannot do what was asked; the message says what to do next."""
