"""Whether a server answers, asked without a gRPC client."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import grpc

from dra_driver.kubelet.knock import why_no_answer
from dra_driver.kubelet.servers import KubeletServers
from tests.kubelet.conftest import DRIVER, Node


def test_a_serving_instance_answers_on_both_sockets(serve: Callable[..., KubeletServers], node: Node) -> None:
    serve()
    for path in (node.plugins / DRIVER / "dra.sock", node.registry / f"{DRIVER}-reg.sock"):
        for _ in range(20):
            assert why_no_answer(path, 5.0) == ""


def test_a_server_without_the_service_does_not_pass_for_one(node: Node) -> None:
    path = node.root / "other.sock"
    server = grpc.server(ThreadPoolExecutor(1))
    server.add_insecure_port(f"unix:{path}")
    server.start()
    assert why_no_answer(path, 5.0) == "the server refused the call"
    server.stop(None).wait()


def test_nobody_there_gives_the_reason_of_the_kernel(node: Node) -> None:
    assert why_no_answer(node.root / "none.sock", 1.0) == "No such file or directory"


def test_one_who_accepts_and_is_silent_is_given_up(node: Node) -> None:
    path = node.root / "silent.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        assert why_no_answer(path, 0.1) == "no answer within 0.1 s"


def test_one_who_hangs_up_is_told(node: Node) -> None:
    path = node.root / "rude.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def hang_up() -> None:
            connection, _ = listener.accept()
            connection.recv(4096)
            connection.close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        assert why_no_answer(path, 5.0) == "the server hung up"
        thread.join()
