"""Files of other projects that are used as they were published, CRDs and charts, out of Go modules that are pinned as programs are."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from e2e.cluster import ClusterError
from e2e.cluster.golang import Go
from e2e.cluster.parts import Module


def published(module: Module, go: Go) -> Path:
    """The module's directory in Go's own cache, checked against our go.sum; read only. ClusterError where it cannot be had."""
    command = [str(go.program), "mod", "download", "-json", module.path]
    done = subprocess.run(
        command, cwd=module.directory, env=go.environment(cgo=False), capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise ClusterError(
            f"fetching {module.path} {module.version} with `{' '.join(command)}` in {module.directory}: "
            f"{(done.stderr or done.stdout).strip()[-800:]}; run the command by hand"
        )
    return Path(json.loads(done.stdout)["Dir"])
