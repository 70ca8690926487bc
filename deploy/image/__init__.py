"""The root directory of the driver's container image: an interpreter, the libraries it loads, our packages, and no more.

Runs in the first stage of the Dockerfile, on any base with Python 3.11 or newer and glibc, and on a developer's machine:
standard library only. Made twice of the same parts it is the same, byte for byte.
"""
