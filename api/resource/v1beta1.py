"""resource.nvidia.com/v1beta1: GpuConfig and MigDeviceConfig, field for field what existing manifests use.

`decode` is the one validator: prepare, `dra-driver validate` and the admission webhook say the same sentences.
Source of names, enums and ranges: the reference sheet of the existing driver, section 3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator, model_validator

from api.resource.quantity import parse_quantity

API_VERSION: Final = "resource.nvidia.com/v1beta1"
MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Mistake:
    """`path` as `sharing.mpsConfig.multiUser`, empty for the object itself."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class ConfigMistakesError(ValueError):
    """All that is wrong with one configuration object."""

    def __init__(self, mistakes: tuple[Mistake, ...]) -> None:
        self.mistakes = mistakes
        super().__init__("; ".join(map(str, mistakes)))


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


def _number_as_text(value: object) -> object:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


# Kubernetes reads a bare JSON number as a quantity too.
Quantity = Annotated[str, BeforeValidator(_number_as_text)]


class TimeSlicingConfig(_Strict):
    """`interval` is the GPU's time slice; Default leaves it to the driver."""

    interval: Literal["Default", "Short", "Medium", "Long"] = "Default"


class MpsConfig(_Strict):
    """Limits of the MPS server. Percentages are 0..100, memory limits quantities of at least 1Mi per client."""

    defaultActiveThreadPercentage: Annotated[int, Field(ge=0, le=100)] | None = None  # noqa: N815 - wire name
    defaultPinnedDeviceMemoryLimit: Quantity | None = None  # noqa: N815 - wire name
    defaultPerDevicePinnedMemoryLimit: dict[str, Quantity] | None = None  # noqa: N815 - UUID or index -> quantity
    multiUser: bool | None = None  # noqa: N815 - wire name

    @field_validator("defaultPinnedDeviceMemoryLimit")
    @classmethod
    def _limit(cls, value: str | None) -> str | None:
        return value if value is None else _memory_limit(value)

    @field_validator("defaultPerDevicePinnedMemoryLimit")
    @classmethod
    def _limits(cls, value: dict[str, str] | None) -> dict[str, str] | None:
        for key, limit in (value or {}).items():
            if not (key.isascii() and key.isdecimal()) and not key.startswith(("GPU-", "MIG-")):
                raise ValueError(f"key {key!r} is neither a device index nor a GPU or MIG UUID")
            try:
                _memory_limit(limit)
            except ValueError as why:
                raise ValueError(f"{key}: {why}") from why
        return value


def _memory_limit(text: str) -> str:
    if parse_quantity(text) < MIB:
        raise ValueError(f"{text!r} is less than 1Mi, the least that MPS can limit to")
    return text


class _Sharing(_Strict):
    strategy: Literal["TimeSlicing", "MPS"]
    mpsConfig: MpsConfig | None = None  # noqa: N815 - wire name

    @model_validator(mode="after")
    def _only_the_chosen_strategy_is_configured(self) -> _Sharing:
        if self.mpsConfig is not None and self.strategy != "MPS":
            raise ValueError(f"mpsConfig is given, but strategy is {self.strategy}: use strategy MPS or drop mpsConfig")
        return self


class GpuSharing(_Sharing):
    timeSlicingConfig: TimeSlicingConfig | None = None  # noqa: N815 - wire name

    @model_validator(mode="after")
    def _time_slicing_goes_with_its_strategy(self) -> GpuSharing:
        if self.timeSlicingConfig is not None and self.strategy != "TimeSlicing":
            raise ValueError(
                f"timeSlicingConfig is given, but strategy is {self.strategy}: use strategy TimeSlicing or drop it"
            )
        return self


class MigDeviceSharing(_Sharing):
    """TimeSlicing is accepted for compatibility; MIG devices have no time slice to set."""


class GpuConfig(_Strict):
    """How a full GPU is shared by the containers and pods that use one claim. Without `sharing`: exclusively."""

    apiVersion: Literal["resource.nvidia.com/v1beta1"] = API_VERSION  # noqa: N815 - wire name
    kind: Literal["GpuConfig"] = "GpuConfig"
    sharing: GpuSharing | None = None


class MigDeviceConfig(_Strict):
    """How a MIG device is shared by the containers and pods that use one claim. Without `sharing`: exclusively."""

    apiVersion: Literal["resource.nvidia.com/v1beta1"] = API_VERSION  # noqa: N815 - wire name
    kind: Literal["MigDeviceConfig"] = "MigDeviceConfig"
    sharing: MigDeviceSharing | None = None


DeviceConfig = GpuConfig | MigDeviceConfig
_KINDS: dict[str, type[GpuConfig] | type[MigDeviceConfig]] = {
    "GpuConfig": GpuConfig,
    "MigDeviceConfig": MigDeviceConfig,
}


def decode(parameters: object) -> DeviceConfig:
    """The decoded object; ConfigMistakesError with every mistake and its path."""
    if not isinstance(parameters, Mapping):
        raise ConfigMistakesError((Mistake("", f"must be an object, not {_json_type(parameters)}"),))
    mistakes = []
    version, kind = parameters.get("apiVersion"), parameters.get("kind")
    if version != API_VERSION:
        mistakes.append(Mistake("apiVersion", f"{_unknown(version)}; use {API_VERSION}"))
    if not isinstance(kind, str) or kind not in _KINDS:
        mistakes.append(Mistake("kind", f"{_unknown(kind)}; use {' or '.join(_KINDS)}"))
    if mistakes:
        raise ConfigMistakesError(tuple(mistakes))
    try:
        return _KINDS[str(kind)].model_validate(dict(parameters))
    except ValidationError as error:
        raise ConfigMistakesError(tuple(_mistake(dict(item)) for item in error.errors())) from None


def json_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of both kinds, for editors and CI."""
    from pydantic import TypeAdapter

    schema: dict[str, Any] = TypeAdapter(DeviceConfig).json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _mistake(item: dict[str, Any]) -> Mistake:
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in item["loc"]).lstrip(".")
    kind, context = item["type"], item.get("ctx") or {}
    if kind == "extra_forbidden":
        return Mistake(path, "unknown field; check its spelling and where it stands")
    if kind == "missing":
        return Mistake(path, "is required")
    if kind == "literal_error":
        return Mistake(path, f"{_shown(item['input'])} is not one of {context['expected']}")
    if kind == "value_error":
        return Mistake(path, str(context["error"]))
    wanted = item["msg"].removeprefix("Input should be ")
    return Mistake(path, f"should be {wanted}, not {_shown(item['input'])}")


def _unknown(value: object) -> str:
    return "is required" if value is None else f"{_shown(value)} is not known to this driver"


def _shown(value: object) -> str:
    text = "null" if value is None else repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _json_type(value: object) -> str:
    names = {type(None): "null", bool: "a boolean", str: "a string", list: "a list", int: "a number", float: "a number"}
    return names.get(type(value), type(value).__name__)
