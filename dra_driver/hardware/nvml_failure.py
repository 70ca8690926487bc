"""What NVML's error numbers mean to this driver, and what the reader of a message can do about each.

Numbers from nvml.h; new drivers add some, so an unknown number is kept as it is.
"""

from __future__ import annotations

NOT_INITIALISED = 1
INVALID_ARGUMENT = 2
NOT_SUPPORTED = 3
NO_PERMISSION = 4
NOT_FOUND = 6
INSUFFICIENT_SIZE = 7
DRIVER_NOT_LOADED = 9
LIBRARY_NOT_FOUND = 12
FUNCTION_NOT_FOUND = 13
GPU_IS_LOST = 15
RESET_REQUIRED = 16
VERSION_MISMATCH = 18
ARGUMENT_VERSION_MISMATCH = 25
GPU_NOT_FOUND = 28

# NVML as a whole is gone: initialise again before anything else.
LIBRARY_LEVEL = frozenset({NOT_INITIALISED, DRIVER_NOT_LOADED, LIBRARY_NOT_FOUND, VERSION_MISMATCH})
# This GPU is gone: nothing else that it says counts.
GPU_LEVEL = frozenset({GPU_IS_LOST, RESET_REQUIRED, GPU_NOT_FOUND})
# This GPU or this driver has no such thing. Permission is here for optional facts only: a container without the
# capability for them still sees the GPU.
ABSENT = frozenset({NOT_SUPPORTED, FUNCTION_NOT_FOUND, ARGUMENT_VERSION_MISMATCH, NO_PERMISSION})

_TEXTS = {
    NOT_INITIALISED: "NVML is not initialised",
    INVALID_ARGUMENT: "NVML refuses the argument",
    NOT_SUPPORTED: "not supported by this GPU",
    NO_PERMISSION: "no permission",
    NOT_FOUND: "not found",
    INSUFFICIENT_SIZE: "buffer too small",
    DRIVER_NOT_LOADED: "the kernel driver is not loaded",
    LIBRARY_NOT_FOUND: "libnvidia-ml.so.1 not found",
    FUNCTION_NOT_FOUND: "this driver does not have the function",
    GPU_IS_LOST: "the GPU is lost (it fell off the bus or no longer answers)",
    RESET_REQUIRED: "the GPU needs a reset",
    VERSION_MISMATCH: "driver library and kernel module are of different versions",
    ARGUMENT_VERSION_MISMATCH: "this driver does not know this version of the argument",
    GPU_NOT_FOUND: "the GPU is gone",
}

_GPU_STEPS = {
    NO_PERMISSION: "run the agent privileged, or give it this GPU's device node",
    GPU_IS_LOST: "look for Xid 79 in the kernel log, then reset the GPU or reboot the node",
    RESET_REQUIRED: "drain the GPU and run `nvidia-smi --gpu-reset`, or reboot the node",
    GPU_NOT_FOUND: "check `lspci`, then rescan the bus or reboot the node",
}

_LIBRARY_STEPS = {
    NO_PERMISSION: "run the agent privileged, so that it may open /dev/nvidiactl",
    DRIVER_NOT_LOADED: "check `nvidia-smi` on the node; load the kernel module with `modprobe nvidia`, or install it",
    LIBRARY_NOT_FOUND: "install NVIDIA's driver, or correct the setting for the driver root",
    VERSION_MISMATCH: "the driver was upgraded while in use: reboot the node, or stop all GPU users and reload the module",
}


def text_of(code: int) -> str:
    """What the number says, in plain words; empty for one that is newer than this table."""
    return _TEXTS.get(code, "")


class NvmlFailure(Exception):
    """An NVML call that failed. Stays inside this room: `NvmlHardware` turns it into problems or a DriverError."""

    def __init__(self, code: int, doing: str, text: str = "") -> None:
        self.code = code
        self.doing = doing
        self.text = text or text_of(code)
        super().__init__(f"{doing}: {self.text or 'unknown error'} (NVML error {code})")


def gpu_problem(failure: NvmlFailure) -> str:
    """Why a GPU is not offered: what failed, and the next step."""
    return _joined(failure, _GPU_STEPS.get(failure.code, "check `nvidia-smi` and the kernel log for Xid messages"))


def driver_problem(failure: NvmlFailure) -> str:
    """Why NVML as a whole is unusable, and the next step."""
    return _joined(failure, _LIBRARY_STEPS.get(failure.code, "check `nvidia-smi` and the kernel log on the node"))


def _joined(failure: NvmlFailure, step: str) -> str:
    return f"{failure}; {step}"
