"""Which configuration applies to which allocation result. Pure.

Rules (upstream's ConfigForResult, and the existing driver's precedence): an entry applies to a result when its request
list is empty or names the result's request, exactly or by the base of `request/sub-request`. Class entries come before
claim entries; the last one that applies wins; configurations are not merged. An entry that names the request must fit
the kind of the device; one that names none is passed over where it does not fit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dra_driver.model.claim import AllocationResult, ClaimRef, OpaqueConfig
from dra_driver.model.errors import TellUser

EXCLUSIVE = "Exclusive"


@dataclass(frozen=True, slots=True)
class DecodedConfig:
    """`strategy` is what chooses the sharing mode; `fits` the device kinds it is meant for; `value` the decoded object."""

    strategy: str
    fits: frozenset[str]
    value: Any = None


DEFAULT = DecodedConfig(EXCLUSIVE, frozenset())

# api/ decodes; the composition root hands the function in, so that nothing is loaded for claims without configuration.
Decoder = Callable[[Mapping[str, Any]], DecodedConfig]


class ConfigRefusal(ValueError):
    """What the decoder raises: one sentence per mistake."""

    def __init__(self, mistakes: Sequence[str]) -> None:
        self.mistakes = tuple(mistakes)
        super().__init__("; ".join(mistakes))


def decode_all(ref: ClaimRef, configs: Sequence[OpaqueConfig], decode: Decoder) -> tuple[DecodedConfig, ...]:
    """Decodes every entry; TellUser with all mistakes of all entries at once."""
    decoded: list[DecodedConfig] = []
    mistakes: list[str] = []
    for position, config in enumerate(configs):
        try:
            decoded.append(decode(config.parameters))
        except ConfigRefusal as refusal:
            where = "DeviceClass" if config.source == "FromClass" else "claim"
            scope = f" for request {', '.join(config.requests)}" if config.requests else ""
            mistakes += [f"configuration {position + 1} (from the {where}{scope}): {why}" for why in refusal.mistakes]
    if mistakes:
        raise TellUser(
            f"reading the configuration of {ref}",
            "; ".join(mistakes),
            "correct the opaque parameters (check a file with `dra-driver validate FILE`) and recreate the claim",
        )
    return tuple(decoded)


def config_for(
    ref: ClaimRef,
    result: AllocationResult,
    kind: str,
    configs: Sequence[OpaqueConfig],
    decoded: Sequence[DecodedConfig],
) -> DecodedConfig:
    """The one entry that applies to this result, DEFAULT if none does."""
    chosen = DEFAULT
    for config, candidate in zip(configs, decoded, strict=True):
        named = bool({result.request, result.base_request} & set(config.requests))
        if config.requests and not named:
            continue
        if kind in candidate.fits:
            chosen = candidate
        elif named:
            raise TellUser(
                f"applying configuration to request {result.request} of {ref}",
                f"the configuration is for {' or '.join(sorted(candidate.fits))} devices, "
                f"but {result.device} is a {kind} device",
                "use the configuration kind of that device, or let the request select another kind",
            )
    return chosen
