from __future__ import annotations

from pathlib import Path

import pytest

from e2e.cluster.options import Options


@pytest.mark.parametrize("name", ["", "Demo", "-demo", "demo-", "de/mo", "a" * 21, "de mo"])
def test_a_name_that_cannot_name_directories_interfaces_and_cgroups_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="naming a cluster"):
        Options(name=name)


def test_nodes_need_different_names() -> None:
    with pytest.raises(ValueError, match="must differ"):
        Options(nodes=("a", "a"))
    with pytest.raises(ValueError, match="control-plane"):
        Options(nodes=("control-plane",))


def test_an_old_containerd_is_for_nodes_that_there_are() -> None:
    with pytest.raises(ValueError, match=r"giving c containerd 1\.7: the nodes are a, b"):
        Options(nodes=("a", "b"), containerd17={"a": True, "c": False})


def test_clusters_of_one_name_in_two_homes_are_two() -> None:
    keys = {Options("demo", home=Path(home)).key for home in ("/var/tmp/dra-e2e", "/srv/a", "/srv/b")}
    assert len(keys) == 3
    assert "demo" in keys


@pytest.mark.parametrize("release", ["1", "v1.34", "1.34.4", "latest"])
def test_a_release_is_a_minor_release(release: str) -> None:
    with pytest.raises(ValueError, match="minor release"):
        Options(emulate=release)


@pytest.mark.parametrize("home", ["/var/lib/e2e", "/run/e2e", "/etc/e2e", "/var/log"])
def test_a_home_that_nodes_cannot_see_is_refused(home: str) -> None:
    with pytest.raises(ValueError, match="DRA_E2E_HOME"):
        Options(home=Path(home))


def test_a_scheduler_runs_where_there_are_nodes_and_v1() -> None:
    assert Options().scheduled
    assert Options(served=("v1", "v1beta1")).scheduled
    assert not Options(nodes=()).scheduled
    assert not Options(served=("v1beta1",)).scheduled


def test_options_survive_being_recorded() -> None:
    options = Options("demo", ("a",), "1.35", ("v1", "v1beta2"), {"B": False, "A": True}, {"a": False})
    assert Options.recorded(options.name, options.home, options.record()) == options
    assert options.same_as(options.record())
    assert not options.same_as(Options("demo").record())
    assert options.gates == "A=true,B=false"
