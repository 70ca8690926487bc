"""What belongs to an installation of NVIDIA's driver, as data: file patterns and where they are searched.

Source: reference/hardware.md 2.4 (nvidia-container-toolkit 1.20). `{version}` is the driver version, `{arch}` the
machine's name as Vulkan's files use it. All paths are below the driver root.
"""

from __future__ import annotations

CONTROL_NODES = ("nvidia-modeset", "nvidia-uvm", "nvidia-uvm-tools", "nvidiactl")

# Searched in every directory that holds a library of this version. The first row takes all that NVIDIA versions with the
# driver; the others have version numbers of their own.
LIBRARIES = (
    "*.so.{version}",
    "libnvidia-nvvm70.so.*",
    "libnvidia-egl-gbm.so.*.*",
    "libnvidia-egl-wayland.so.*.*",
    "libnvidia-egl-wayland2.so.*.*",
    "libnvidia-egl-xcb.so.*.*",
    "libnvidia-egl-xlib.so.*.*",
    "libnvidia-vulkan-producer.so.{version}",
)

# Names under which programs open a library and that no SONAME gives: (library that must be there, further name). A name
# with a slash lies in that subdirectory of the library's directory.
EXTRA_NAMES = (
    ("libcuda.so.{version}", "libcuda.so"),
    ("libnvidia-opticalflow.so.{version}", "libnvidia-opticalflow.so"),
    ("libGLX_nvidia.so.{version}", "libGLX_indirect.so.0"),
    ("libnvidia-allocator.so.{version}", "gbm/nvidia-drm_gbm.so"),
    ("libnvidia-vulkan-producer.so.{version}", "libnvidia-vulkan-producer.so"),
    ("libglxserver_nvidia.so.{version}", "libglxserver_nvidia.so"),
)

# SONAMEs by library where it cannot be told from the links of the installation (links are made by the installer's
# ldconfig, and some images of driver containers lack them).
SONAMES = (
    ("libcuda.so.{version}", "libcuda.so.1"),
    ("libnvidia-ml.so.{version}", "libnvidia-ml.so.1"),
    ("libnvidia-ptxjitcompiler.so.{version}", "libnvidia-ptxjitcompiler.so.1"),
    ("libnvidia-opencl.so.{version}", "libnvidia-opencl.so.1"),
    ("libnvidia-cfg.so.{version}", "libnvidia-cfg.so.1"),
    ("libnvidia-allocator.so.{version}", "libnvidia-allocator.so.1"),
    ("libnvidia-opticalflow.so.{version}", "libnvidia-opticalflow.so.1"),
    ("libnvidia-encode.so.{version}", "libnvidia-encode.so.1"),
    ("libnvidia-fbc.so.{version}", "libnvidia-fbc.so.1"),
    ("libnvcuvid.so.{version}", "libnvcuvid.so.1"),
    ("libcudadebugger.so.{version}", "libcudadebugger.so.1"),
    ("libnvidia-nvvm.so.{version}", "libnvidia-nvvm.so.4"),
    ("libEGL_nvidia.so.{version}", "libEGL_nvidia.so.0"),
    ("libGLX_nvidia.so.{version}", "libGLX_nvidia.so.0"),
    ("libGLESv1_CM_nvidia.so.{version}", "libGLESv1_CM_nvidia.so.1"),
    ("libGLESv2_nvidia.so.{version}", "libGLESv2_nvidia.so.2"),
)

VDPAU = "vdpau"  # subdirectory of a library directory

XORG_DIRECTORIES = (
    "usr/lib/xorg/modules",
    "usr/lib64/xorg/modules",
    "usr/lib/x86_64-linux-gnu/nvidia/xorg",
    "usr/lib/aarch64-linux-gnu/nvidia/xorg",
)
XORG_MODULES = (
    "drivers/nvidia_drv.so",
    "extensions/libglxserver_nvidia.so.{version}",
    "nvidia_drv.so",
    "libglxserver_nvidia.so.{version}",
)

FIRMWARE_DIRECTORIES = ("lib/firmware/updates", "lib/firmware", "usr/lib/firmware")
FIRMWARE = "nvidia/{version}/gsp*.bin"

BINARY_DIRECTORIES = ("usr/local/sbin", "usr/local/bin", "usr/sbin", "usr/bin", "sbin", "bin", "opt/bin")
BINARIES = (
    "nvidia-smi",
    "nvidia-debugdump",
    "nvidia-persistenced",
    "nvidia-cuda-mps-control",
    "nvidia-cuda-mps-server",
    "nvidia-imex",
    "nvidia-imex-ctl",
    "nvidia-xconfig",
)

# Not /tmp/nvidia-mps, which nvidia-ctk mounts where it exists: a container gets MPS by asking for it, not because
# somebody runs a daemon on the node.
SOCKET_DIRECTORIES = ("run", "var/run")
SOCKETS = ("nvidia-persistenced/socket", "nvidia-fabricmanager/socket")

CONFIG_DIRECTORIES = ("etc", "usr/local/share", "usr/share")
CONFIGS_IN_SHARE = (
    "glvnd/egl_vendor.d/10_nvidia.json",
    "egl/egl_external_platform.d/15_nvidia_gbm.json",
    "egl/egl_external_platform.d/10_nvidia_wayland.json",
    "egl/egl_external_platform.d/09_nvidia_wayland2.json",
    "egl/egl_external_platform.d/20_nvidia_xcb.json",
    "egl/egl_external_platform.d/20_nvidia_xlib.json",
    "nvidia/nvoptix.bin",
    "X11/xorg.conf.d/10-nvidia.conf",
    "X11/xorg.conf.d/nvidia-drm-outputclass.conf",
)
CONFIGS_IN_ETC = (
    "OpenCL/vendors/nvidia.icd",
    "vulkan/icd.d/nvidia_icd.json",
    "vulkan/icd.d/nvidia_layers.json",
    "vulkan/implicit_layer.d/nvidia_layers.json",
    "vulkan/icd.d/nvidia_icd.{arch}.json",
)

# Not `ro`: connecting to a socket is a write.
SOCKET_OPTIONS = ("nosuid", "nodev", "rbind", "rprivate", "noexec")
