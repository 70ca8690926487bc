"""Parsed arguments -> settings: the one step that every verb with settings begins with."""

from __future__ import annotations

import argparse

from dra_driver.settings import TABLE, Settings, load


def from_arguments(arguments: argparse.Namespace, required: tuple[str, ...] = ()) -> Settings:
    """A setting that the verb has no flag for comes from the environment, the file or its default."""
    flags = {row.name: getattr(arguments, row.name, None) for row in TABLE}
    return load(flags, file=arguments.config, required=required)
