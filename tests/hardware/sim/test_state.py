"""State that several processes share."""

import subprocess
import sys
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import pynvml
import pytest
from asking import elsewhere

from dra_driver.hardware.sim.command import main
from dra_driver.hardware.sim.library import SimulatedNvml
from dra_driver.hardware.sim.simulation import SimulatedMachine
from dra_driver.hardware.sim.state import StateFile

EMIT = """
import sys
from dra_driver.hardware.sim.simulation import SimulatedMachine
machine = SimulatedMachine.open(sys.argv[1])
for number in range(40):
    machine.emit_xid(0, number)
"""


def test_processes_and_threads_that_change_it_at_once_lose_nothing(h100) -> None:
    others = [subprocess.Popen([sys.executable, "-c", EMIT, str(h100.directory)]) for _ in range(3)]
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda number: h100.emit_xid(1, number), range(40)))
    assert [process.wait(timeout=60) for process in others] == [0, 0, 0]
    events = h100.state()["events"]
    assert len(events) == 160
    assert len({event["seq"] for event in events}) == 160


def test_a_reader_sees_each_of_many_quick_changes(h100) -> None:
    reader = StateFile(h100.directory)
    signatures = set()
    for number in range(300):
        h100.set_health(0, "ecc_corrected", number % 10)
        assert reader.read()["gpus"]["0000:1b:00.0"]["ecc_corrected"] == number % 10
        signatures.add((h100.directory / "state.json").stat().st_mtime_ns)
    assert len(signatures) == 300


def test_a_reader_parses_only_what_is_new(h100) -> None:
    reader = StateFile(h100.directory)
    assert reader.read() is reader.read()
    before = reader.read()
    h100.lose_gpu(0)
    assert reader.read() is not before


def test_a_change_that_fails_changes_nothing(h100) -> None:
    before = (h100.directory / "state.json").read_bytes()

    def change() -> None:
        with StateFile(h100.directory).change() as state:
            state["gpus"].clear()
            state["epoch"] //= 0

    with pytest.raises(ZeroDivisionError):
        change()
    assert (h100.directory / "state.json").read_bytes() == before


def test_what_one_process_creates_another_one_sees(nvml, h100) -> None:
    h100.set_mig_mode(0, enabled=True)
    nvml.nvmlDeviceCreateGpuInstance(nvml.nvmlDeviceGetHandleByIndex(0), 19)
    code = (
        "import sys, pynvml; from dra_driver.hardware.sim.library import SimulatedNvml\n"
        "pynvml.nvmlLib = SimulatedNvml(sys.argv[1]); pynvml.nvmlInit()\n"
        "handle = pynvml.nvmlDeviceGetHandleByIndex(0)\n"
        "found = pynvml.nvmlDeviceGetGpuInstanceById(handle, 7)\n"
        "print(pynvml.nvmlGpuInstanceGetInfo(found).profileId)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, h100.directory], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "19\n"


def test_a_machine_that_was_opened_shows_what_others_did(h100) -> None:
    opened = SimulatedMachine.open(h100.directory)
    elsewhere(h100, "remove", "7")
    assert not opened.state()["gpus"]["0000:df:00.0"]["present"]


def test_the_agents_part_needs_neither_yaml_nor_a_compiler_nor_a_parser(h100) -> None:
    code = (
        "import sys\n"
        "from dra_driver.hardware.sim.library import SimulatedNvml\n"
        "from dra_driver.hardware.sim.simulation import SimulatedMachine\n"
        "SimulatedMachine.create(sys.argv[1], 'dgx-h100')\n"
        "heavy = {'yaml', 'subprocess', 'hashlib', 'argparse', 'shutil', 'uuid', 'logging', 'pynvml'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, h100.directory], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "[]\n"


def test_the_library_of_a_large_machine_takes_little_memory(h100) -> None:
    tracemalloc.start()
    try:
        pynvml.nvmlLib = SimulatedNvml(h100.directory)
        pynvml._nvmlGetFunctionPointer_cache.clear()
        pynvml.nvmlInit()
        for index in range(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            for enum in (0, 1, 2, 3, 4, 7, 9):
                pynvml.nvmlDeviceGetGpuInstanceProfileInfo(handle, enum)
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        pynvml.nvmlLib = None
        pynvml._nvmlGetFunctionPointer_cache.clear()
    assert used < 512 * 1024


def test_the_command_shows_what_it_did(h100, capsys) -> None:
    place = str(h100.directory)
    for words in (
        ["lose", "1"],
        ["remove", "2"],
        ["mig", "3", "on"],
        ["hang", "--gpu", "4"],
        ["process", "5", "77"],
    ):
        assert main([place, *words]) == 0
    assert main([place, "show"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("dgx-h100: DGX H100")
    rows = {line.split()[1]: line for line in lines if line.startswith("GPU ")}
    assert rows["1"].endswith(": lost, MIG off")
    assert rows["2"].endswith(": removed, MIG off")
    assert rows["3"].endswith(": ok, MIG on")
    assert rows["5"].endswith("1 process(es)")
    assert lines[-1] == "fault: hang * on 0000:9d:00.0"


def test_the_command_fails_with_the_reason_in_one_line(tmp_path, capsys) -> None:
    assert main([str(tmp_path / "none"), "show"]) == 1
    assert "create it first" in capsys.readouterr().err
    assert main([str(tmp_path / "new"), "create", "nonsense"]) == 1
    assert "known are dgx-a100" in capsys.readouterr().err
