from __future__ import annotations

import subprocess

import pytest

from e2e.cluster import ClusterError
from e2e.kind.node_image import OURS, SOURCES, containerd

KINDS = """
[plugins."io.containerd.grpc.v1.cri"]
  # use fixed sandbox image
  sandbox_image = "registry.k8s.io/pause:3.10"
  restrict_oom_score_adj = false
"""


def test_the_pause_image_is_the_one_that_kubeadm_lists() -> None:
    text = containerd(KINDS, "registry.k8s.io/pause:3.11", restricted=False)
    assert '  sandbox_image = "registry.k8s.io/pause:3.11"\n' in text
    assert "restrict_oom_score_adj = false" in text


def test_without_the_capability_no_oom_score_is_lowered() -> None:
    assert "restrict_oom_score_adj = true" in containerd(KINDS, "p", restricted=True)


def test_a_configuration_that_has_changed_is_noticed() -> None:
    with pytest.raises(ClusterError, match="0 times"):
        containerd(KINDS.replace("sandbox_image", "sandbox"), "p", restricted=False)


def test_the_scripts_are_shell() -> None:
    for source in OURS.values():
        if source.endswith(".sh"):
            subprocess.run(["sh", "-n", str(SOURCES / source)], check=True)
