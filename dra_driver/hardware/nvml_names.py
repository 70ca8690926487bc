"""NVML's numbers as the strings that are published. They are part of the drop-in promise: selectors compare them.

Source: go-nvlib 0.8.1 `device.go` (what NVIDIA's DRA driver publishes) for brand and architecture; numbers from nvml.h.
"""

from __future__ import annotations

UNKNOWN = "Unknown"

BRANDS: dict[int, str] = {
    0: UNKNOWN,
    1: "Quadro",
    2: "Tesla",
    3: "NVS",
    4: "Grid",
    5: "GeForce",
    6: "Titan",
    7: "NvidiaVApps",
    8: "NvidiaVPC",
    9: "NvidiaVCS",
    10: "NvidiaVWS",
    11: "NvidiaCloudGaming",
    12: "QuadroRTX",
    13: "NvidiaRTX",
    14: "Nvidia",
    15: "GeForceRTX",
    16: "TitanRTX",
}

# 11, 12 (DLA) and 15 (NPU) are not GPUs. Rubin is not in go-nvlib yet; its name follows the pattern.
ARCHITECTURES: dict[int, str] = {
    2: "Kepler",
    3: "Maxwell",
    4: "Pascal",
    5: "Volta",
    6: "Turing",
    7: "Ampere",
    8: "Ada Lovelace",
    9: "Hopper",
    10: "Blackwell",
    13: "Rubin",
    0xFFFFFFFF: UNKNOWN,
}

ADDRESSING_MODES: dict[int, str] = {0: "None", 1: "HMM", 2: "ATS"}

FABRIC_STATES: dict[int, str] = {1: "not_started", 2: "in_progress", 3: "completed"}

# Suffix of a MIG profile's name by the enum that lists it, for drivers that do not state the name (before R535).
MIG_SUFFIXES: dict[int, str] = {
    7: "+me",
    8: "+me",
    10: "+gfx",
    11: "+gfx",
    12: "+gfx",
    17: "+gfx",
    13: "-me",
    14: "-me",
    15: "+me.all",
    16: "+me.all",
}
