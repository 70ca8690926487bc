"""Where API objects keep opaque configuration, and what is wrong with it. `dra-driver validate` and the admission webhook
ask here, so that both say the same sentences as prepare, whose decoder this is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from api.resource.v1beta1 import ConfigMistakesError, decode

# As a path of keys; the same in resource.k8s.io v1, v1beta2 and v1beta1, whose requests differ.
CONFIG_PATHS: Final[Mapping[str, tuple[str, ...]]] = {
    "ResourceClaim": ("spec", "devices", "config"),
    "ResourceClaimTemplate": ("spec", "spec", "devices", "config"),
    "DeviceClass": ("spec", "config"),
}


@dataclass(frozen=True, slots=True)
class Configuration:
    """`path` as `spec.devices.config[0].opaque.parameters`."""

    path: str
    parameters: object

    def mistakes(self) -> tuple[tuple[str, str], ...]:
        """(path from the object's root, sentence) of each mistake, none where all is right."""
        try:
            decode(self.parameters)
        except ConfigMistakesError as error:
            return tuple(
                (f"{self.path}.{mistake.path}" if mistake.path else self.path, mistake.message)
                for mistake in error.mistakes
            )
        return ()

    def strategy(self) -> str | None:
        """The sharing strategy that it asks for, None where it asks for none or cannot be read."""
        try:
            sharing = decode(self.parameters).sharing
        except ConfigMistakesError:
            return None
        return sharing.strategy if sharing else None


def configurations(document: object, driver: str, kind: str | None = None) -> Iterator[Configuration]:
    """Each opaque configuration for `driver`, in order. `kind` where the object may not say its own. What has another
    shape than the API server lets through has no configuration: that is the API server's to tell."""
    if not isinstance(document, dict):
        return
    path = CONFIG_PATHS.get(str(document.get("kind") if kind is None else kind), ())
    node: Any = document if path else None
    for key in path:
        node = node.get(key) if isinstance(node, dict) else None
    for position, entry in enumerate(node if isinstance(node, list) else ()):
        opaque = entry.get("opaque") if isinstance(entry, dict) else None
        if isinstance(opaque, dict) and opaque.get("driver") == driver:
            yield Configuration(f"{'.'.join(path)}[{position}].opaque.parameters", opaque.get("parameters"))
