"""Container edits inside a record: field names of ours, so that a change in CDI does not change the ledger. Pure."""

from __future__ import annotations

from typing import Any

from dra_driver.model.cdi import ContainerEdits, DeviceNode, Hook, Mount
from dra_driver.state.fields import Fields


def encode_edits(edits: ContainerEdits) -> dict[str, Any]:
    """A JSON object; what is empty or None is left out, except the options of a mount, whose default is not empty."""
    lists: dict[str, list[Any]] = {
        "env": list(edits.env),
        "deviceNodes": [
            _said(
                {
                    "path": node.path,
                    "hostPath": node.host_path,
                    "major": node.major,
                    "minor": node.minor,
                    "fileMode": node.file_mode,
                    "permissions": node.permissions,
                }
            )
            for node in edits.device_nodes
        ],
        "mounts": [
            {"hostPath": mount.host_path, "containerPath": mount.container_path, "options": list(mount.options)}
            for mount in edits.mounts
        ],
        "hooks": [
            _said({"name": hook.name, "path": hook.path, "args": list(hook.args), "env": list(hook.env)})
            for hook in edits.hooks
        ],
    }
    return {key: items for key, items in lists.items() if items}


def decode_edits(edits: Fields | None) -> ContainerEdits:
    """None, or nothing in it, is no edits. ValueError with the path of what is wrong."""
    if edits is None:
        return ContainerEdits()
    return ContainerEdits(
        env=edits.texts("env"),
        device_nodes=tuple(
            DeviceNode(
                path=node.text("path"),
                host_path=node.optional_text("hostPath"),
                major=node.optional_number("major"),
                minor=node.optional_number("minor"),
                file_mode=node.optional_number("fileMode"),
                permissions=node.optional_text("permissions"),
            )
            for node in edits.objects("deviceNodes")
        ),
        mounts=tuple(
            Mount(mount.text("hostPath"), mount.text("containerPath"), mount.texts("options"))
            for mount in edits.objects("mounts")
        ),
        hooks=tuple(
            Hook(hook.text("name"), hook.text("path"), hook.texts("args"), hook.texts("env"))
            for hook in edits.objects("hooks")
        ),
    )


def _said(fields: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value is not None and value != []}
