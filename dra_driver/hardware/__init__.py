"""The machine: NVML through pynvml (the only importer of it), driver files, sysfs and proc under configurable roots; and the simulated machine."""
