"""cert-manager beside the driver: its CRDs as its chart has them, its controllers and CA injector as one process on a node.

Its own webhook is not there: it only refuses what is written wrong, and the CRDs do so for the most part.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from e2e.cluster import ClusterError
from e2e.cluster.build import build
from e2e.cluster.golang import install_go, present_go
from e2e.cluster.parts import BESIDE, CERT_MANAGER
from e2e.cluster.published import published
from e2e.installation import View

CRDS = ("certificaterequests", "certificates", "clusterissuers", "issuers")


@dataclass(frozen=True, slots=True)
class CertManager:
    program: Path
    crds: str  # as a manifest; those of ACME, too, since the controllers watch them all

    @classmethod
    def made(cls, helm: Path) -> CertManager:
        """Built where it is not cached, which takes two minutes."""
        go = present_go() or install_go()
        program = build(BESIDE, go, pause=False)["cert-manager"]
        return cls(program, _crds(helm, published(CERT_MANAGER, go) / "deploy" / "charts" / "cert-manager"))

    def install(self, view: View, node: str) -> None:
        """It ends with the node at the latest. Returns when API servers serve its resources."""
        view.kubectl("create", "-f", "-", stdin=self.crds)
        view.kubectl("wait", "--for=condition=Established", "crd", *(f"{name}.cert-manager.io" for name in CRDS))
        argv = [str(self.program), f"--kubeconfig={view.cluster.kubeconfig}"]
        view.cluster.nodes[node].start(argv, name="cert-manager")


def _crds(helm: Path, chart: Path) -> str:
    shown = [f"--show-only=templates/{file.name}" for file in sorted((chart / "templates").glob("crd-*.yaml"))]
    command = [str(helm), "template", "cert-manager", str(chart), "--set=crds.enabled=true", *shown]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ClusterError(
            f"rendering the CRDs of {chart} with `{' '.join(command)}`: {done.stderr.strip()[-800:]}; run the command by hand"
        )
    return done.stdout
