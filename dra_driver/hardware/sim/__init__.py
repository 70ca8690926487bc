"""A GPU machine that is not there: a stand-in for `libnvidia-ml` below pynvml, plus the files of a host.

It may not know the driver above it: nothing here imports pynvml, the adapter or any other room, so that what runs
against it is the code that runs in production. Its state lies in a directory that any process may open.
"""
