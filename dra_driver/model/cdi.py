"""What a container gets: the edits of a CDI spec as values. Rendering them to a spec is `dra_driver.cdi`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DeviceNode:
    """`path` in the container. `host_path` only where it differs. With `major` given the node need not exist on the host."""

    path: str
    host_path: str | None = None
    major: int | None = None
    minor: int | None = None
    file_mode: int | None = None
    permissions: str | None = None


@dataclass(frozen=True, slots=True)
class Mount:
    host_path: str
    container_path: str
    options: tuple[str, ...] = ("ro", "nosuid", "nodev", "rbind", "rprivate")


@dataclass(frozen=True, slots=True)
class Hook:
    """An OCI hook: `name` as createContainer, `path` on the host, `args` with argv[0] first."""

    name: str
    path: str
    args: tuple[str, ...] = ()
    env: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ContainerEdits:
    """Edits are a monoid: `a + b` are both, in order, without repeating what is there already."""

    env: tuple[str, ...] = ()
    device_nodes: tuple[DeviceNode, ...] = ()
    mounts: tuple[Mount, ...] = ()
    hooks: tuple[Hook, ...] = ()

    def __add__(self, other: ContainerEdits) -> ContainerEdits:
        return ContainerEdits(
            env=tuple(dict.fromkeys(self.env + other.env)),
            device_nodes=tuple(dict.fromkeys(self.device_nodes + other.device_nodes)),
            mounts=tuple(dict.fromkeys(self.mounts + other.mounts)),
            hooks=tuple(dict.fromkeys(self.hooks + other.hooks)),
        )

    def __bool__(self) -> bool:
        return bool(self.env or self.device_nodes or self.mounts or self.hooks)
