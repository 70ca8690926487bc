"""The nouns of the driver, in the order a claim meets them: Gpu, Device, LiveDevice, PreparedDevice, CDI spec.

Frozen data on the standard library only: no I/O, no clock, no logging.
"""
