"""How a program in a container finds the libraries that were mounted into it, without anything of ours on the host.

In this order: NVIDIA's own hook where the host has it; else the host's ldconfig, run by the host's shell as a
createContainer hook; else further mounts under the names that programs ask for, and LD_LIBRARY_PATH.

runc (1.5.2, `prepareRootfs`) runs createContainer hooks in the container's mount namespace with the host's root still in
place and the working directory at the container's root; crun (`container_init_setup`) runs them in the bundle and tells
the root in the state on standard input.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from dra_driver.hardware.driver_root import below, is_file, resolve
from dra_driver.hardware.driver_search import Installation, Item
from dra_driver.model.cdi import ContainerEdits, Hook
from dra_driver.model.errors import TellUser

_HOOKS = ("/usr/bin/nvidia-cdi-hook", "/usr/local/nvidia/toolkit/nvidia-cdi-hook", "/usr/local/bin/nvidia-cdi-hook")
_OLDER_HOOKS = ("/usr/bin/nvidia-ctk", "/usr/local/nvidia/toolkit/nvidia-ctk")  # `nvidia-ctk hook <name>`
_LDCONFIGS = ("/sbin/ldconfig.real", "/usr/sbin/ldconfig.real", "/sbin/ldconfig", "/usr/sbin/ldconfig")
_SHELLS = ("/bin/sh", "/usr/bin/sh")
CANDIDATES = _HOOKS + _OLDER_HOOKS + _LDCONFIGS + _SHELLS

# In every release that has hooks at all. The others came one by one (1.17 to 1.20), and a hook that the binary does not
# know fails the container: so they are looked for in the binary's text.
_OLDEST_COMMANDS = ("create-symlinks", "update-ldcache")
_COMMANDS = (
    "create-symlinks",
    "enable-cuda-compat",
    "update-ldcache",
    "disable-device-node-modification",
    "update-application-profile",
)

_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# Runs on the host, as root, beside an image that nobody vouches for. So it trusts only what the runtime says (the state on
# standard input up to the annotations, which users write) and uses no program of the image; ldconfig enters the root with
# chroot; and a link is made only after the working directory, wherever links of the image led to, has proved to be inside
# the root. It never fails the container: the image may be one for which this cannot work and that needs no GPU libraries.
# Arguments: ldconfig, then loader directories and `target::/directory/link` in any order.
SCRIPT = r"""say() { echo "GPU libraries: $*; the container starts without them in its loader cache" >&2; exit 0; }
s=; while IFS= read -r l || [ -n "$l" ]; do s=$s$l; done
s=${s%%'"annotations"'*}
value() { v=${s#*"\"$1\""}; [ "$v" = "$s" ] && return 1; v=${v#*:}; v=${v#*'"'}; v=${v%%'"'*}; [ -n "$v" ]; }
if value root; then cd -P -- "$v" || say "cannot enter the root $v"
elif value bundle && [ . -ef "$v" ] && [ -d rootfs ] && [ ! -L rootfs ]; then cd rootfs || say "cannot enter rootfs"; fi
[ . -ef / ] && say "refusing to touch the root of the host"
[ -d etc ] || exit 0
r=$(pwd -P); c=$1; shift; [ -x "$c" ] || say "no $c on this host"
link() { cd -P "./${2%/*}" && case $(pwd -P) in "$r"/*) [ -e "$3" ] && [ ! -L "$3" ] || ln -sfn "$1" "$3";; esac; }
n=$#; while [ "$n" -gt 0 ]; do a=$1; shift; n=$((n-1)); case $a in
*::*) (link "${a%%::*}" "${a#*::}" "${a##*/}") || :;; *) set -- "$@" "$a";; esac; done
"$c" -r . "$@" || say "$c failed"
exit 0"""


@dataclass(frozen=True, slots=True)
class HostTools:
    """What the host offers. `hook` is the beginning of an argument vector; empty strings mean: not there."""

    hook: tuple[str, ...] = ()
    commands: frozenset[str] = frozenset()
    ldconfig: str = ""
    shell: str = ""


def find_host_tools(host_root: str, cdi_hook: str = "") -> HostTools:
    """`host_root` is where this process sees the host's `/`; `cdi_hook` a host path that is to be used, TellUser if it is
    not there. Results are host paths."""
    if cdi_hook and _file(host_root, cdi_hook) is None:
        raise TellUser(
            f"looking for the hook {cdi_hook} on the host",
            f"there is no such file below {host_root}, where the host's root should be seen",
            "correct the setting cdi_hook or host_root, or leave cdi_hook empty",
        )
    hook: tuple[str, ...] = ()
    for path in (cdi_hook,) if cdi_hook else _HOOKS + _OLDER_HOOKS:
        if _file(host_root, path) is not None:
            hook = (path, "hook") if os.path.basename(path) == "nvidia-ctk" else (path,)
            break
    return HostTools(
        hook=hook,
        commands=_commands(host_root, hook[0]) if hook else frozenset(),
        ldconfig=next((path for path in _LDCONFIGS if _is_program(host_root, path)), ""),
        shell=next((path for path in _SHELLS if _file(host_root, path) is not None), ""),
    )


def nvidia_hook(tools: HostTools, command: str, *arguments: str) -> Hook:
    """One hook of the NVIDIA container toolkit: `nvidia-cdi-hook update-ldcache --folder /usr/lib64`."""
    name = os.path.basename(tools.hook[0])
    return Hook(
        "createContainer", tools.hook[0], (name, *tools.hook[1:], command, *arguments), ("NVIDIA_CTK_DEBUG=false",)
    )


def toolkit_edits(tools: HostTools, found: Installation) -> ContainerEdits:
    """NVIDIA's hooks in NVIDIA's order, those that this release knows."""
    links = [_link(os.path.basename(item.source), item) for item in found.sonames]
    sonames = {item.source: os.path.basename(item.target) for item in found.sonames}
    for item in found.extra_names:  # to the SONAME where there is one, as nvidia-ctk does it
        links.append(_link(sonames.get(item.source, os.path.basename(item.source)), item))
    arguments: dict[str, list[str]] = {
        "create-symlinks": [word for link in links for word in ("--link", link)],
        "enable-cuda-compat": [f"--host-driver-version={found.version}"],
        "update-ldcache": [word for directory in found.loader_directories for word in ("--folder", directory)],
    }
    hooks = [nvidia_hook(tools, name, *arguments.get(name, ())) for name in _COMMANDS if name in tools.commands]
    return ContainerEdits(env=(f"NVIDIA_CTK_LIBCUDA_DIR={found.cuda_directory}",), hooks=tuple(hooks))


def ldconfig_edits(tools: HostTools, found: Installation) -> ContainerEdits:
    """The host's ldconfig, guarded: it makes the SONAME links and the cache. Further names have to be links to be in the
    cache, but for those in directories of plug-ins, which are opened by path: those stay mounts."""
    # To the full name: ldconfig passes over a link that dangles, as one to a SONAME would when it comes by.
    links = (_link(os.path.basename(item.source), item) for item in found.extra_names if not is_plugin(found, item))
    arguments = ("sh", "-c", SCRIPT, "gpu-libraries", tools.ldconfig, *found.loader_directories, *links)
    return ContainerEdits(hooks=(Hook("createContainer", tools.shell, arguments, (_PATH, "LC_ALL=C")),))


def is_plugin(found: Installation, item: Item) -> bool:
    """True when the loader does not look where this file is."""
    return os.path.dirname(item.target) not in found.loader_directories


def search_path_edits(found: Installation) -> ContainerEdits:
    """LD_LIBRARY_PATH, with what NVIDIA's images set there themselves: the variable of the image is replaced."""
    directories = (*found.loader_directories, "/usr/local/nvidia/lib", "/usr/local/nvidia/lib64")
    return ContainerEdits(env=("LD_LIBRARY_PATH=" + ":".join(directories),))


def _link(name: str, item: Item) -> str:
    """`libcuda.so.1::/usr/lib64/libcuda.so`: what a link says, relative to its place, and its place."""
    beside = os.path.join(os.path.dirname(item.source), name)
    return f"{os.path.relpath(beside, os.path.dirname(item.target))}::{item.target}"


def _file(host_root: str, path: str) -> str | None:
    found = resolve(host_root, path)
    return found if found is not None and is_file(host_root, found) else None


def _is_program(host_root: str, path: str) -> bool:
    """Not a script: Ubuntu's /sbin/ldconfig is a shell script around ldconfig.real."""
    found = _file(host_root, path)
    if found is None:
        return False
    try:
        with open(below(host_root, found), "rb") as file:
            return file.read(4) == b"\x7fELF"
    except OSError:
        return False


def _commands(host_root: str, hook: str) -> frozenset[str]:
    # The GPU operator installs a script of that name and the program as `.real` beside it.
    for path in (hook + ".real", hook):
        found = _file(host_root, path)
        if found is None or not _is_program(host_root, path):
            continue
        try:
            with open(below(host_root, found), "rb") as file:
                text = file.read()
        except OSError:
            continue
        known = frozenset(name for name in _COMMANDS if name.encode() in text)
        if known.issuperset(_OLDEST_COMMANDS):
            return known
    return frozenset(_OLDEST_COMMANDS)
