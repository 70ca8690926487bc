"""Both sockets and their life: registration, overlap of instances, restarts, wiped directories, draining."""

from __future__ import annotations

import os
import shutil
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest

from dra_driver.kubelet import sockets
from dra_driver.kubelet.names import socket_names
from dra_driver.kubelet.servers import KubeletServers
from dra_driver.model.claim import ClaimRef
from dra_driver.model.errors import RetryLater, TellUser
from tests.kubelet.conftest import DRIVER, Node, Service, device_of
from tests.kubelet.fake_kubelet import FakeKubelet, eventually, running

Serve = Callable[..., KubeletServers]
A, B = "aaaaaaaa-0000-4000-8000-000000000001", "bbbbbbbb-0000-4000-8000-000000000002"
CLAIM = ("uid-a", "default", "a")


def files(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def dead_socket(path: Path) -> None:
    """What a killed process leaves behind."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(path))


def test_the_kubelet_finds_and_registers_the_driver(serve: Serve, node: Node) -> None:
    with running(FakeKubelet(node.registry)) as kubelet:
        servers = serve()
        plugin = kubelet.plugin(DRIVER)
        assert plugin.supported_versions == ["v1.DRAPlugin", "v1beta1.DRAPlugin"]
        assert plugin.version == "v1.DRAPlugin"
        assert plugin.endpoint == str(node.plugins / DRIVER / "dra.sock")
        eventually(lambda: servers.registered)
        assert servers.not_ready() == []
        assert servers.not_alive() == []


def test_only_finished_sockets_and_the_lock_are_in_the_directories(serve: Serve, node: Node) -> None:
    serve()
    assert files(node.registry) == [f"{DRIVER}-reg.sock"]
    assert files(node.plugins / DRIVER) == ["dra.sock", "sockets.lock"]
    assert stat.S_ISSOCK((node.registry / f"{DRIVER}-reg.sock").stat().st_mode)


def test_before_the_kubelet_calls_the_driver_is_alive_but_not_ready(serve: Serve, node: Node) -> None:
    servers = serve()
    assert servers.not_ready() == [
        f"registering with the kubelet: it has not called yet; does it watch {node.registry}?"
    ]
    assert servers.not_alive() == []


def test_a_refusal_is_told_with_the_reason_of_the_kubelet(
    serve: Serve, node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    with running(FakeKubelet(node.registry, refusal="no DRA here")) as kubelet:
        servers = serve()
        eventually(lambda: "refused: no DRA here" in " ".join(servers.not_ready()))
        assert not servers.registered
        assert "refused to register the driver: no DRA here" in caplog.text
        kubelet.refusal = ""
        eventually(lambda: servers.registered)


def test_a_kubelet_that_restarts_registers_the_driver_again(serve: Serve, node: Node) -> None:
    with running(FakeKubelet(node.registry)) as kubelet:
        serve()
        assert kubelet.prepare(DRIVER, [CLAIM])["uid-a"].error == ""
        kubelet.restart()
        assert kubelet.prepare(DRIVER, [CLAIM])["uid-a"].error == ""


def test_a_kubelet_that_comes_later_finds_the_driver(serve: Serve, node: Node) -> None:
    serve()
    with running(FakeKubelet(node.registry)) as kubelet:
        kubelet.plugin(DRIVER)


def test_stopping_leaves_no_socket(serve: Serve, node: Node) -> None:
    servers = serve()
    assert servers.stop() is True
    assert files(node.registry) == []
    assert files(node.plugins / DRIVER) == ["sockets.lock"]
    assert servers.stop() is True
    assert servers.not_ready() == ["the kubelet servers have not been started"]


def test_stopping_lets_the_calls_of_the_kubelet_end_before_it_hangs_up(
    serve: Serve, node: Node, service: Service
) -> None:
    """It closes the connection, and running calls with it, when the registration socket goes."""
    began, let_go = threading.Event(), threading.Event()

    def slow(ref: ClaimRef) -> list:
        began.set()
        assert let_go.wait(10)
        return [device_of(ref)]

    service.acts["a"] = slow
    servers = serve(drain_s=10.0)
    kubelet = FakeKubelet(node.registry)
    with running(kubelet):
        plugin = kubelet.plugin(DRIVER)
        request = plugin.wire.NodePrepareResourcesRequest(claims=[plugin.wire.Claim(uid="uid-a", name="a")])
        call = plugin.stub.NodePrepareResources.future(request, timeout=20)
        assert began.wait(10)
        stopping = threading.Thread(target=servers.stop)
        stopping.start()
        stopping.join(0.3)  # the stand-in looks every 10 ms, the kubelet every second
        let_go.set()
        assert len(call.result().claims["uid-a"].devices) == 1
        stopping.join(10)
        eventually(lambda: not kubelet.plugins)
    assert files(node.registry) == []
    assert files(node.plugins / DRIVER) == ["sockets.lock"]


def test_a_call_that_does_not_end_cannot_hold_up_the_stop(
    serve: Serve, node: Node, service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    began, let_go = threading.Event(), threading.Event()

    def hang(ref: ClaimRef) -> list:
        began.set()
        let_go.wait(30)
        return []

    service.acts["a"] = hang
    servers = serve(drain_s=0.2)
    try:
        with running(FakeKubelet(node.registry)) as kubelet:
            plugin = kubelet.plugin(DRIVER)
            request = plugin.wire.NodePrepareResourcesRequest(claims=[plugin.wire.Claim(uid="uid-a", name="a")])
            call = plugin.stub.NodePrepareResources.future(request, timeout=20)
            assert began.wait(10)
            started = time.monotonic()
            assert servers.stop() is False
            assert time.monotonic() - started < 5
            assert "prepare claim /a (UID uid-a) has not ended after 0.2 s" in caplog.text
            with pytest.raises(grpc.RpcError):
                call.result()
    finally:
        let_go.set()


def test_two_instances_overlap_and_neither_touches_the_sockets_of_the_other(serve: Serve, node: Node) -> None:
    old_service, new_service = Service(), Service()
    with running(FakeKubelet(node.registry)) as kubelet:
        old = serve(A, service=old_service)
        kubelet.prepare(DRIVER, [CLAIM])
        new = serve(B, service=new_service)
        eventually(lambda: len(kubelet.plugins) == 2)
        kubelet.prepare(DRIVER, [CLAIM])
        assert (len(old_service.calls), len(new_service.calls)) == (1, 1)
        old.stop()
        eventually(lambda: len(kubelet.plugins) == 1)
        kubelet.unprepare(DRIVER, [CLAIM])
        assert len(new_service.calls) == 2
        assert new.not_alive() == []
    assert files(node.registry) == [f"{DRIVER}-{B}-reg.sock"]
    assert files(node.plugins / DRIVER) == [f"dra-{B}.sock", "sockets.lock"]


def test_a_second_instance_of_the_same_name_is_refused_and_the_first_one_serves_on(serve: Serve, node: Node) -> None:
    first = serve()
    second = KubeletServers(DRIVER, node.plugins, node.registry, Service())
    with pytest.raises(TellUser, match=r"another instance of the driver answers there; .*--instance, POD_UID"):
        second.start()
    second.stop()
    with running(FakeKubelet(node.registry)) as kubelet:
        assert kubelet.prepare(DRIVER, [CLAIM])["uid-a"].error == ""
    assert first.not_alive() == []
    assert files(node.registry) == [f"{DRIVER}-reg.sock"]


def test_two_instances_that_start_at_once_leave_one_serving(node: Node) -> None:
    contenders = [KubeletServers(DRIVER, node.plugins, node.registry, Service()) for _ in range(4)]
    outcomes: list[str] = []

    def start(servers: KubeletServers) -> None:
        try:
            servers.start()
            outcomes.append("serves")
        except TellUser:
            outcomes.append("refused")

    threads = [threading.Thread(target=start, args=(servers,)) for servers in contenders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["refused"] * 3 + ["serves"]
    with running(FakeKubelet(node.registry)) as kubelet:
        assert kubelet.prepare(DRIVER, [CLAIM])["uid-a"].error == ""
    for servers in contenders:
        servers.stop()
    assert files(node.registry) == []


def test_an_instance_whose_path_was_taken_does_not_delete_the_socket_of_the_successor(serve: Serve, node: Node) -> None:
    servers = serve(check_every_s=60.0)
    theirs = node.registry / f"{DRIVER}-reg.sock"
    theirs.unlink()
    with socket.socket(socket.AF_UNIX) as successor:
        successor.bind(str(theirs))
        successor.listen()
        servers.stop()
        assert theirs.exists()
        assert sockets.somebody_answers(theirs)


def test_a_path_that_another_process_has_taken_is_reported_and_left_alone(serve: Serve, node: Node) -> None:
    servers = serve()
    theirs = node.registry / f"{DRIVER}-reg.sock"
    with socket.socket(socket.AF_UNIX) as successor:
        hidden = node.registry / ".theirs"
        successor.bind(str(hidden))
        successor.listen()
        hidden.rename(theirs)
        inode = theirs.stat().st_ino
        eventually(lambda: "another instance of the driver answers there" in " ".join(servers.not_alive()))
        assert theirs.stat().st_ino == inode
    # Its process has ended: the path is ours again.
    eventually(lambda: servers.not_alive() == [])
    assert theirs.stat().st_ino != inode


def test_sockets_of_a_killed_instance_are_replaced(serve: Serve, node: Node) -> None:
    dead_socket(node.registry / f"{DRIVER}-reg.sock")
    dead_socket(node.plugins / DRIVER / "dra.sock")
    with running(FakeKubelet(node.registry, retry_s=0.02)) as kubelet:
        eventually(lambda: kubelet.failures)
        serve()
        assert kubelet.prepare(DRIVER, [CLAIM])["uid-a"].error == ""


def test_a_process_killed_outright_is_succeeded_by_one_of_the_same_name(node: Node) -> None:
    code = (
        "import sys, time; from pathlib import Path; from dra_driver.kubelet.servers import KubeletServers\n"
        "KubeletServers(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), None).start()\n"
        "print('serving', flush=True); time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, DRIVER, node.plugins, node.registry], stdout=subprocess.PIPE, text=True
    ) as killed:
        assert killed.stdout is not None
        assert killed.stdout.readline() == "serving\n"
        servers = KubeletServers(DRIVER, node.plugins, node.registry, Service())
        with pytest.raises(TellUser, match="another instance"):
            servers.start()
        killed.kill()
        killed.wait()
    with running(FakeKubelet(node.registry)) as kubelet:
        servers.start()
        assert kubelet.prepare(DRIVER, [CLAIM])["uid-a"].error == ""
        servers.stop()
    assert files(node.registry) == []


def test_sockets_of_dead_pods_of_this_driver_are_cleaned_up_and_no_others(serve: Serve, node: Node) -> None:
    names = socket_names(DRIVER, node.plugins, node.registry)
    ours = [node.registry / f"{DRIVER}-{A}-reg.sock", names.data_dir / f"dra-{A}.sock", names.data_dir / ".dra-xyz"]
    others = [node.registry / f"other.com-{A}-reg.sock", node.registry / "plain-reg.sock"]
    for path in ours + others:
        dead_socket(path)
    serve(B)
    assert all(path.exists() for path in ours + others), "a socket this young may be about to listen"
    swept = [
        path
        for directory in (names.data_dir, node.registry)
        for path in sockets.sweep(directory, names.is_of_an_instance, older_than_s=0.0)
    ]
    assert sorted(swept) == sorted(ours)
    assert [path.exists() for path in others] == [True, True]
    assert (node.registry / f"{DRIVER}-{B}-reg.sock").exists(), "a live sibling stays"


def test_a_wiped_registry_directory_gets_its_socket_again(serve: Serve, node: Node) -> None:
    with running(FakeKubelet(node.registry)) as kubelet:
        servers = serve()
        eventually(lambda: servers.registered)
        for round_number in range(3):
            (node.registry / f"{DRIVER}-reg.sock").unlink()
            node.registry.rmdir()
            eventually(lambda: not kubelet.plugins, why=f"round {round_number}")
            eventually(lambda: any("it does not exist" in reason for reason in servers.not_ready()))
            assert any("plugin registry directory" in reason for reason in servers.not_alive())
            node.registry.mkdir()
            assert kubelet.prepare(DRIVER, [CLAIM])["uid-a"].error == ""
            eventually(lambda: servers.registered)
            eventually(lambda: servers.not_ready() == [])


def test_a_wiped_data_directory_gets_its_socket_again_and_running_calls_end(
    serve: Serve, node: Node, service: Service
) -> None:
    began, let_go = threading.Event(), threading.Event()

    def slow(ref: ClaimRef) -> list:
        began.set()
        assert let_go.wait(10)
        return [device_of(ref)]

    service.acts["a"] = slow
    servers = serve()
    data = node.plugins / DRIVER
    with running(FakeKubelet(node.registry)) as kubelet:
        plugin = kubelet.plugin(DRIVER)
        request = plugin.wire.NodePrepareResourcesRequest(claims=[plugin.wire.Claim(uid="uid-a", name="a")])
        call = plugin.stub.NodePrepareResources.future(request, timeout=20)
        assert began.wait(10)
        for path in data.iterdir():
            path.unlink()
        data.rmdir()
        eventually((data / "dra.sock").exists)
        let_go.set()
        assert len(call.result().claims["uid-a"].devices) == 1
        kubelet.restart()
        assert kubelet.prepare(DRIVER, [("uid-b", "default", "b")])["uid-b"].error == ""
    servers.stop()
    assert files(data) == ["sockets.lock"]
    assert files(node.registry) == []


def test_stopping_takes_the_registration_away_even_without_the_lock_and_tells_every_error(
    serve: Serve, node: Node
) -> None:
    servers = serve(check_every_s=60.0)
    shutil.rmtree(node.plugins / DRIVER)
    with pytest.raises(ExceptionGroup, match="stopping the kubelet servers") as raised:
        servers.stop()
    assert files(node.registry) == []
    assert [str(error).split(":")[0] for error in raised.value.exceptions] == [
        f"opening the lock {node.plugins / DRIVER / 'sockets.lock'}"
    ] * 2


@pytest.mark.parametrize("missing", ["plugins", "registry"])
def test_a_missing_directory_of_the_kubelet_is_named(node: Node, missing: str) -> None:
    getattr(node, missing).rmdir()
    servers = KubeletServers(DRIVER, node.plugins, node.registry, Service())
    with pytest.raises(TellUser, match=rf"{getattr(node, missing)}: it does not exist; see that it is mounted"):
        servers.start()
    assert not (node.plugins / DRIVER).exists()


def test_a_file_in_place_of_a_socket_is_named_and_kept(node: Node) -> None:
    obstacle = node.registry / f"{DRIVER}-reg.sock"
    obstacle.write_text("precious")
    servers = KubeletServers(DRIVER, node.plugins, node.registry, Service())
    with pytest.raises(TellUser, match=r"a file that is not a socket is in its place.*remove"):
        servers.start()
    assert obstacle.read_text() == "precious"
    assert files(node.plugins / DRIVER) == ["sockets.lock"]


def test_a_path_that_is_too_long_is_told_before_anything_is_made(node: Node) -> None:
    plugins = node.root / ("p" * 100)
    plugins.mkdir()
    servers = KubeletServers(DRIVER, plugins, node.registry, Service())
    with pytest.raises(TellUser, match=r"the kernel takes at most 107: \d+ too many"):
        servers.start()
    assert files(plugins) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_directory_that_may_not_be_written_is_named(node: Node) -> None:
    node.registry.chmod(0o500)
    servers = KubeletServers(DRIVER, node.plugins, node.registry, Service())
    with pytest.raises(TellUser, match="writable"):
        servers.start()


def test_an_instance_that_hangs_while_it_holds_the_lock_is_named(tmp_path: Path) -> None:
    lock = tmp_path / "sockets.lock"
    with (
        sockets.locked(lock),
        pytest.raises(RetryLater, match=r"another instance has held it for 0.05 s"),
        sockets.locked(lock, timeout_s=0.05),
    ):
        pass
    with sockets.locked(lock, timeout_s=0.05):
        pass
