"""How live devices are shared: one file per mode. A mode acts on live devices only and does not know what kind they are."""
