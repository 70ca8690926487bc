"""`NvmlHardware`: the GPUs of this machine through NVML. Implements `ports.Hardware`.

NVML comes and goes under a running agent: no driver yet, a driver upgrade, a GPU that hangs or falls off the bus. Each
inventory tells what there is now and initialises again where that helps.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from functools import partial

from dra_driver.hardware import nvml_api, nvml_failure
from dra_driver.hardware.driver_root import DriverRoot
from dra_driver.hardware.gpu_facts import DriverVersions, GpuReader
from dra_driver.hardware.nvml_failure import NvmlFailure, driver_problem, gpu_problem
from dra_driver.hardware.nvml_library import NvmlLibrary
from dra_driver.hardware.roots import HostRoots
from dra_driver.hardware.watched import Broken, NoAnswer, Walk, Watched
from dra_driver.model.errors import DriverError, RetryLater, TellUser
from dra_driver.model.gpu import Gpu, GpuProblem, Inventory, PciAddress

# How long after its beginning a look ahead is an answer. No container starts so soon after its claim was prepared: what
# happens to the GPU meanwhile could as well happen just after an answer.
LOOK_HOLDS_S = 0.05

_DRIVER = -1  # beside the GPU indexes: calls that concern no GPU


class NvmlHardware:
    """`nvml_library` is an object with NVML's C functions (a simulated machine); without it the library is looked for
    below `roots.driver`, or below what `locate` says at each load. Limits are in seconds: for everything that is read of
    one GPU, and for initialising NVML (without persistence mode that powers up every GPU)."""

    def __init__(
        self,
        roots: HostRoots,
        *,
        nvml_library: object | None = None,
        locate: Callable[[], DriverRoot] | None = None,
        call_timeout_s: float = 5.0,
        init_timeout_s: float = 30.0,
        look_holds_s: float = LOOK_HOLDS_S,
    ) -> None:
        self._given_library = nvml_library
        self._library = NvmlLibrary((lambda: locate().seen) if locate is not None else (lambda: roots.driver))
        self._call_timeout_s = call_timeout_s
        self._init_timeout_s = max(init_timeout_s, call_timeout_s)
        self._look_holds_s = look_holds_s
        self._reader = GpuReader(roots)
        self._watched = Watched()
        self._scanning = threading.Lock()
        self._versions: DriverVersions | None = None  # set while NVML is usable
        self._initialised = False  # NVML counts: every initialisation wants its shutdown
        self._by_pci: dict[PciAddress, Gpu] = {}
        self._look: tuple[Walk[Gpu], float] | None = None  # and when it began
        self._lost: set[str] = set()

    def start(self) -> None:
        """Initialises NVML if that is possible now. Never raises: `inventory` says what is wrong, and tries again."""
        self._count()

    def stop(self) -> None:
        """Shuts NVML down, unless a call into it hangs."""
        self._watched.read_each([_DRIVER], lambda _: self._shut_down(), self._call_timeout_s)
        self._watched.close()

    def inventory(self) -> Inventory:
        with self._scanning:  # bounded: every read inside is
            answers = self._read_all()
            if isinstance(answers, str):
                self._by_pci = {}
                return Inventory(gpus=(), driver_problem=answers)
            gpus = sorted((answer for answer in answers.values() if isinstance(answer, Gpu)), key=lambda gpu: gpu.pci)
            self._by_pci = {gpu.pci: gpu for gpu in gpus}
            self._lost = {self._where(i) for i, answer in answers.items() if _failure(answer, nvml_failure.GPU_LEVEL)}
        problems = [GpuProblem(self._where(index), why) for index, why in self._troubles(answers)]
        return Inventory(gpus=tuple(gpus), problems=tuple(sorted(problems, key=lambda problem: problem.where)))

    def gpu(self, pci: str) -> Gpu | None:
        """As the port says. RetryLater when the GPU does not answer in time, TellUser when the driver is not usable:
        neither means that the GPU is gone."""
        try:
            address = PciAddress.parse(pci)
        except ValueError:
            return None
        known, versions = self._by_pci.get(address), self._versions
        if known is not None and versions is not None:
            answer = self._looked(known) or self._proof(known, versions)
            if isinstance(answer, NoAnswer):
                raise RetryLater(f"reading the GPU at {pci}", _no_answer(self._call_timeout_s))
            if isinstance(answer, Gpu) and answer.pci == address:
                return answer
            if _failure(answer, nvml_failure.GPU_LEVEL):
                return None
        inventory = self.inventory()
        if inventory.driver_problem is not None:
            raise TellUser(f"reading the GPU at {pci}", inventory.driver_problem)
        for problem in inventory.problems:
            if problem.where == str(address) and problem.where not in self._lost:
                raise RetryLater(f"reading the GPU at {pci}", problem.why)
        return next((gpu for gpu in inventory.gpus if gpu.pci == address), None)

    def look_ahead(self) -> None:
        now = time.monotonic()
        look, versions = self._look, self._versions
        # One that hangs costs a thread: it stays the only one.
        if versions is None or (look is not None and (not look[0].finished or now < look[1] + self._look_holds_s)):
            return
        known = {gpu.index: gpu for gpu in self._by_pci.values()}
        self._look = self._watched.begin(known, lambda index: self._reader.prove(known[index], versions)), now

    def _looked(self, known: Gpu) -> Gpu | None:
        look = self._look
        if look is None or time.monotonic() >= look[1] + self._look_holds_s:
            return None
        found = look[0].results.get(known.index)
        return known if found is known else None

    def _proof(self, known: Gpu, versions: DriverVersions) -> Gpu | Broken | NoAnswer:
        prove = partial(self._reader.prove, known, versions)
        return self._watched.read_each([known.index], lambda _: prove(), self._call_timeout_s)[known.index]

    def _read_all(self) -> dict[int, Gpu | Broken | NoAnswer] | str:
        """An answer for each GPU index, or why NVML is unusable. When NVML turns out to be gone it is initialised anew
        and everything is read once more."""
        for last_try in (False, True):
            count = self._count()
            if isinstance(count, str):
                return count
            versions = self._versions
            if versions is None:  # a prepare has just found NVML gone
                continue
            read = partial(self._reader.read, versions=versions)
            answers = self._watched.read_each(range(count), read, self._call_timeout_s)
            gone = next(
                (failure for answer in answers.values() if (failure := _failure(answer, nvml_failure.LIBRARY_LEVEL))),
                None,
            )
            if gone is None:
                return answers
            self._versions = None
            if last_try:
                return driver_problem(gone)
        return driver_problem(NvmlFailure(nvml_failure.NOT_INITIALISED, "reading the GPUs"))

    def _count(self) -> int | str:
        """How many GPUs NVML knows, or why it is unusable."""
        limit = self._call_timeout_s if self._versions is not None else self._init_timeout_s
        answer = self._watched.read_each([_DRIVER], lambda _: self._open(), limit)[_DRIVER]
        if isinstance(answer, NoAnswer):
            return f"initialising NVML: {_no_answer(limit)}"
        if isinstance(answer, Broken):
            error = answer.error
            if isinstance(error, NvmlFailure):
                return driver_problem(error)
            return str(error) if isinstance(error, DriverError) else f"initialising NVML: {error!r}"
        return answer

    def _open(self) -> int:
        if self._versions is not None:
            try:
                return nvml_api.gpu_count()
            except NvmlFailure as failure:
                if failure.code not in nvml_failure.LIBRARY_LEVEL:
                    raise
        self._shut_down()
        self._reader.forget_addresses()
        nvml_api.use_library(self._given_library if self._given_library is not None else self._library.load())
        nvml_api.initialise()
        self._initialised = True
        self._versions = DriverVersions(nvml_api.driver_version(), nvml_api.cuda_version())
        return nvml_api.gpu_count()

    def _shut_down(self) -> None:
        self._versions = None
        if self._initialised:
            self._initialised = False
            with contextlib.suppress(NvmlFailure):
                nvml_api.shut_down()

    def _troubles(self, answers: dict[int, Gpu | Broken | NoAnswer]) -> list[tuple[int, str]]:
        found = []
        for index, answer in answers.items():
            if isinstance(answer, NoAnswer):
                found.append((index, _no_answer(self._call_timeout_s)))
            elif isinstance(answer, Broken):
                error = answer.error
                found.append(
                    (index, gpu_problem(error) if isinstance(error, NvmlFailure) else f"reading it: {error!r}")
                )
        return found

    def _where(self, index: int) -> str:
        address = self._reader.address(index)
        return f"GPU index {index}" if address is None else str(address)


def _failure(answer: object, codes: frozenset[int]) -> NvmlFailure | None:
    if isinstance(answer, Broken) and isinstance(answer.error, NvmlFailure) and answer.error.code in codes:
        return answer.error
    return None


def _no_answer(limit_s: float) -> str:
    return (
        f"no answer from NVML within {limit_s:g} s, GPU or driver hang; check the kernel log for Xid messages and reset the "
        "GPU or reboot the node; it is used again when it answers"
    )
