"""`make bench`: the table of times and sizes, and the parts that they are made of."""

from __future__ import annotations

import argparse
import re
import statistics
import sys
import time
from collections.abc import Callable, Sequence

from dra_driver.cli.table import print_table
from dra_driver.kube.client import KubeApi
from dra_driver.model.claim import ClaimRef
from e2e.bench import claims
from e2e.bench.agent import Agent, Kubelet
from e2e.bench.parts import where_the_time_goes
from e2e.bench.reviews import reviews
from e2e.by_process import ByProcess
from e2e.cluster import Cluster, ClusterError, Options, processes
from e2e.installation import MANIFESTS, View, documents

NODE = "bench-node"
THOUSANDS = 15  # times that 1,000 claims come and go, with fewer calls each than a row of its own has
FEWER = 5
SLICES = "/apis/resource.k8s.io/v1/resourceslices"


def print_row(*cells: str) -> None:
    """As they are measured: the whole takes a quarter of an hour."""
    print("{:35} {:28} {:14} {}".format(*cells).rstrip(), flush=True)


class Bench:
    def __init__(self, cluster: Cluster, agent: Agent, rounds: int) -> None:
        self.cluster = cluster
        self.agent = agent
        self.rounds = rounds
        print_row("", "FIGURE", "BAR", "")

    def row(self, what: str, figure: str, bar: str, holds: bool | None) -> None:
        print_row(what, figure, bar, {True: "holds", False: "DOES NOT HOLD", None: ""}[holds])

    def start_time(self) -> None:
        seconds = []
        for _ in range(5):
            self.agent.stop()
            for item in self.cluster.request("GET", SLICES)["items"]:
                self.cluster.request("DELETE", f"{SLICES}/{item['metadata']['name']}")
            seconds.append(self.agent.start())
        middle = statistics.median(seconds)
        self.row("start to first slice, 8 GPUs", f"{middle:.2f} s", "0.5 s", middle <= 0.5)

    def calls(self, devices: Sequence[str]) -> None:
        kubelet = Kubelet(self.agent.socket)
        refs = [claims.allocate(self.cluster, f"one-{n}", NODE, device) for n, device in enumerate(devices)]
        api = KubeApi(str(self.cluster.kubeconfig))
        path = f"/apis/resource.k8s.io/v1/namespaces/{claims.NAMESPACE}/resourceclaims/{refs[0].name}"

        def get_claim() -> None:
            """As the agent reads it."""
            for answer in api.ask([path]):
                answer()

        get, empty, one, eight, at_once = self.interleaved(
            get_claim,
            lambda: kubelet.prepare([]),
            self.prepared(kubelet, refs[:1]),
            self.prepared(kubelet, refs),
            self.prepared(kubelet, refs, kubelet.prepare_at_once),
        )
        floor = get + empty
        self.row("floor: one GET of the claim", f"{get:.2f} ms", "", None)
        self.row("floor: one empty gRPC call", f"{empty:.2f} ms", "", None)
        self.row("1 claim, p50", f"{one:.2f} ms = {one / floor:.2f} x floor", "1.4 x floor", one / floor <= 1.4)
        self.row(
            "8 claims in one RPC, p50", f"{eight:.2f} ms = {eight / one:.2f} x one", "3 x one claim", eight / one <= 3
        )
        self.row(
            "8 RPCs at once, p50", f"{at_once:.2f} ms = {at_once / one:.2f} x one", "5 x one claim", at_once / one <= 5
        )
        self.thousand(kubelet, refs[:1], devices, get_claim)
        rss, anonymous = self.agent.memory_mib()
        self.row(
            "RSS, anonymous after that", f"{rss:.0f}, {anonymous:.0f} MiB", "64, 40 MiB", rss <= 64 and anonymous <= 40
        )
        kubelet.close()

    def thousand(
        self, kubelet: Kubelet, one: Sequence[ClaimRef], devices: Sequence[str], floor: Callable[[], object]
    ) -> None:
        """1,000 claims cannot come and go between two calls, and the machine is not the same a second later: both times are
        taken as ratios to a floor beside them, and compared only with their neighbour."""
        many = claims.allocate_many(self.cluster, "many", 1000, NODE, devices)
        without: list[float] = []
        with_them: list[float] = []
        for _ in range(THOUSANDS):
            for ratios, act in ((without, kubelet.prepare), (with_them, kubelet.unprepare)):
                once, beside = self.interleaved(self.prepared(kubelet, one), floor, rounds=self.rounds // FEWER)
                ratios.append(once / beside)
                for begin in range(0, len(many), 50):
                    act(many[begin : begin + 50])
        ratio = statistics.median(after / before for before, after in zip(without, with_them, strict=True))
        self.row("1 claim while 1,000 are prepared", f"{ratio:.2f} x while none is", "1.05 x", ratio <= 1.05)

    def prepared(
        self, kubelet: Kubelet, refs: Sequence[ClaimRef], act: Callable[[Sequence[ClaimRef]], float] | None = None
    ) -> Callable[[], float]:
        """Prepares these claims by `act` (in one call, if None) and unprepares them; the seconds of preparing."""

        def once() -> float:
            seconds = (act or kubelet.prepare)(refs)
            kubelet.unprepare(refs)
            return seconds

        return once

    def interleaved(self, *acts: Callable[[], object], rounds: int = 0) -> list[float]:
        """Median milliseconds of each, in turn so that drift hits all alike. An act may return its own seconds."""
        seconds: list[list[float]] = [[] for _ in acts]
        for number in range((rounds or self.rounds) + 20):
            for kept, act in zip(seconds, acts, strict=True):
                begin = time.perf_counter()
                own = act()
                if number >= 20:
                    kept.append(own if isinstance(own, float) else time.perf_counter() - begin)
        return [statistics.median(kept) * 1000 for kept in seconds]

    def endurance(self, devices: Sequence[str], times: int) -> None:
        kubelet = Kubelet(self.agent.socket)
        ref = claims.allocate(self.cluster, "endurance", NODE, devices[0])
        for _ in range(times):
            kubelet.prepare([ref])
            kubelet.unprepare([ref])
        kubelet.close()
        rss, anonymous = self.agent.memory_mib()
        holds = rss <= 64 and anonymous <= 40
        self.row(f"RSS, anonymous after {times:,} more", f"{rss:.0f}, {anonymous:.0f} MiB", "64, 40 MiB", holds)

    def idle(self, seconds: float) -> None:
        for part in ("controller-manager", "scheduler"):
            self.cluster.stop(part)  # they use the same resources, and are not what is measured
        self.cluster.nodes[NODE].stop_kubelet()
        time.sleep(5)
        requests, cpu = self.requests(), self.agent.cpu_s()
        time.sleep(seconds)
        writes = sum(
            n - requests.get(key, 0) for key, n in self.requests().items() if key[0] not in ("GET", "LIST", "WATCH")
        )
        reads = sum(n - requests.get(key, 0) for key, n in self.requests().items() if key[0] in ("GET", "LIST"))
        share = (self.agent.cpu_s() - cpu) / seconds * 100
        self.row(f"idle for {seconds:.0f} s: API writes", f"{writes:.0f}", "0", writes == 0)
        self.row("idle: API requests a minute", f"{reads / seconds * 60:.2f}", "1", reads / seconds * 60 <= 1)
        self.row("idle: share of a core", f"{share:.3f} %", "0.1 %", share < 0.1)

    def requests(self) -> dict[tuple[str, str], float]:
        """(verb, resource) -> requests so far, as the API server counts them; nobody else uses these resources here."""
        text = View(self.cluster).kubectl("get", "--raw", "/metrics")
        found: dict[tuple[str, str], float] = {}
        for line in text.splitlines():
            match = re.match(r"apiserver_request_total\{(.*)\} ([0-9.e+]+)$", line)
            if match:
                labels = dict(re.findall(r'(\w+)="([^"]*)"', match.group(1)))
                if labels.get("resource") in ("resourceslices", "resourceclaims", "nodes", "events"):
                    key = (labels["verb"], labels["resource"])
                    found[key] = found.get(key, 0.0) + float(match.group(2))
        return found


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m e2e.bench", description=__doc__)
    parser.add_argument("--rounds", type=int, default=200, help="calls per figure (default %(default)s)")
    parser.add_argument("--endurance", type=int, default=10_000, help="prepare/unprepare pairs (default %(default)s)")
    parser.add_argument("--idle", type=float, default=600, help="seconds of idleness (default %(default)s)")
    arguments = parser.parse_args(argv)
    cluster = processes(Options(name="bench", nodes=(NODE,)))
    done = False
    try:
        cluster.up()
        run(cluster, arguments)
        done = True
    except ClusterError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    finally:
        cluster.down(keep_logs=not done)  # the error names them
    return 0


def run(cluster: Cluster, arguments: argparse.Namespace) -> None:
    installation = ByProcess(cluster, {})
    manifests = (MANIFESTS / "rbac.yaml", MANIFESTS / "deviceclasses.yaml")
    installation.apply(*(item for manifest in manifests for item in documents(manifest.read_text())))
    claims.namespace(cluster)
    agent = Agent(installation, NODE, "dgx-h100")
    agent.settle()
    bench = Bench(cluster, agent, arguments.rounds)
    try:
        bench.start_time()
        rss, anonymous = agent.memory_mib()
        bench.row(
            "RSS, anonymous at start", f"{rss:.0f}, {anonymous:.0f} MiB", "64, 40 MiB", rss <= 64 and anonymous <= 40
        )
        devices = [device["name"] for device in installation.devices(NODE)]
        bench.calls(devices)
        for row in reviews(cluster):
            bench.row(*row)
        if arguments.endurance:
            bench.endurance(devices, arguments.endurance)
        if arguments.idle:
            bench.idle(arguments.idle)
    finally:
        agent.stop()
    ref = claims.allocate(cluster, "parts", NODE, devices[0])
    parts = where_the_time_goes(cluster, NODE, ref, arguments.rounds)
    print("\nWhere the time of one prepare goes (medians):\n")
    print_table(("PORT CALL", "CALLS", "MS"), [(name, f"{calls:.1f}", f"{ms:.3f}") for name, calls, ms in parts])


if __name__ == "__main__":
    sys.exit(main())
