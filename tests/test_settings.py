"""Settings: one table, three sources, all mistakes at once."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_driver.model.errors import TellUser
from dra_driver.settings import TABLE, load


def test_defaults_are_right_by_themselves() -> None:
    settings = load({}, {})
    assert settings.driver_name == "gpu.nvidia.com"
    assert settings.ledger_dir == Path("/run/gpu.nvidia.com/ledger")


def test_a_flag_beats_a_variable_beats_the_file(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("node-name: from-file\nrescan-s: 5\ncdi-dir: /file\n")
    settings = load(
        {"node_name": "from-flag"}, {"DRA_DRIVER_NODE_NAME": "from-variable", "CDI_ROOT": "/variable"}, file
    )
    assert (settings.node_name, settings.cdi_dir, settings.rescan_s) == ("from-flag", "/variable", 5.0)


def test_all_mistakes_are_told_at_once_and_where_they_come_from(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("rescan-s: soon\nnodename: x\nlog-level: [a]\n")
    with pytest.raises(TellUser) as caught:
        load({"cdi_dir": "relative"}, {"DRA_DRIVER_HTTP_ADDRESS": "8080"}, file, required=("node_name",))
    for words in (
        "--node-name is required",
        "--cdi-dir 'relative': must be an absolute path",
        "environment variable DRA_DRIVER_HTTP_ADDRESS '8080': must be ADDRESS:PORT",
        "rescan-s in the settings file 'soon': must be a number of seconds",
        "'nodename' is not a setting",
        "log-level must be a plain value",
    ):
        assert words in str(caught.value)


def test_what_the_file_says_of_a_node_beats_what_it_says_of_all(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("machine: t4\nrescan-s: 5\nnodes:\n  node-a: {machine: dgx-h100}\n  node-b: {rescan-s: 7}\n")
    of = {node: load({}, {"NODE_NAME": node}, file) for node in ("node-a", "node-b", "node-c")}
    assert [(of[node].machine, of[node].rescan_s) for node in of] == [("dgx-h100", 5), ("t4", 7), ("t4", 5)]
    assert load({"machine": "gb200"}, {"NODE_NAME": "node-a"}, file).machine == "gb200"


def test_mistakes_about_any_node_are_told_on_every_node(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("nodes:\n  node-a: {mashine: t4}\n  node-b: t4\n")
    with pytest.raises(TellUser) as caught:
        load({}, {"NODE_NAME": "node-c"}, file)
    assert "nodes.node-a: 'mashine' is not a setting" in str(caught.value)
    assert "nodes.node-b: must be a mapping of setting names to values" in str(caught.value)
    file.write_text("nodes: [node-a]\n")
    with pytest.raises(TellUser, match="nodes must be a mapping of node names to settings"):
        load({}, {}, file)


def test_a_port_alone_is_all_addresses_of_both_families() -> None:
    assert load({"http_address": ":8080"}, {}).http_address == ":8080"


@pytest.mark.parametrize("text", ["- a", "{", "\x00", "a: &a [*a]"])
def test_a_file_that_is_no_mapping_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(text)
    with pytest.raises(TellUser, match="settings file"):
        load({}, {}, file)


@given(st.dictionaries(st.sampled_from([row.name for row in TABLE]), st.text(max_size=30)))
def test_no_value_does_anything_but_load_or_be_refused(values: dict[str, str]) -> None:
    try:
        load(values, {})
    except TellUser as refusal:
        assert refusal.next_step


def test_off_in_a_file_is_the_word_off_although_yaml_reads_it_as_false(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("http-address: off\nnode-labels: off\nnodes:\n  node-1: {node-labels: off}\n")
    found = load({"node_name": "node-1"}, {}, file)
    assert (found.http_address, found.node_labels) == ("off", "off")
