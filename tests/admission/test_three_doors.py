"""One validator behind three doors: `dra-driver validate`, the webhook, and prepare as the kubelet calls it."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dra_driver.admission.door import Door
from dra_driver.cli.main import main
from tests.admission.reviews import DRIVER, NOT_OFFERED, WRONG, body, entry, gpu, manifest, review
from tests.flows.agent import Agent
from tests.flows.node import GPU_0, NODE, FlowNode
from tests.kube.stub_api import StubApi

Say = Callable[[dict[str, Any]], str]
PATH = "spec.devices.config[0].opaque.parameters"


@pytest.fixture(scope="module")
def prepare() -> Iterator[Say]:
    """What the kubelet is told when it wants a claim with this configuration prepared."""
    directory = Path(tempfile.mkdtemp(prefix="doors-"))
    with StubApi() as api:
        api.put("nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE, "uid": "node-uid"}})
        node = FlowNode(directory / "n", api)
        with Agent(node) as agent:
            yield lambda parameters: agent.refused(
                node.claim(GPU_0, configs=[{"source": "FromClaim", **entry(parameters)}])
            )
    shutil.rmtree(directory)


@pytest.fixture
def validate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Say:
    def say(parameters: dict[str, Any]) -> str:
        path = tmp_path / "claim.json"
        path.write_text(json.dumps(manifest(entry(parameters))))
        assert main(["validate", str(path)]) == 1
        return capsys.readouterr().out

    return say


@pytest.fixture
def webhook() -> Say:
    def say(parameters: dict[str, Any]) -> str:
        reply = Door(DRIVER, lambda *_: None).answer(body(review(manifest(entry(parameters)))))
        response = json.loads(reply.body)["response"]
        assert not response["allowed"]
        causes = [f"{cause['field']}: {cause['message']}" for cause in response["status"]["details"]["causes"]]
        message: str = response["status"]["message"]
        assert all(cause in message for cause in causes)
        return "\n".join(causes)

    return say


@pytest.mark.parametrize("wrong", WRONG)
def test_the_three_doors_say_the_same_sentences(wrong: str, validate: Say, webhook: Say, prepare: Say) -> None:
    parameters, sentences = WRONG[wrong]
    by_validate = re.findall(rf"{re.escape(PATH)}\.?(.*)", validate(parameters))
    by_webhook = re.findall(rf"{re.escape(PATH)}\.?(.*)", webhook(parameters))
    assert sorted(by_validate) == sorted(by_webhook) == sorted(sentences)
    by_prepare = prepare(parameters)
    for sentence in sentences:
        assert f"configuration 1 (from the claim): {sentence}" in by_prepare
    assert by_prepare.count("configuration 1") == len(sentences)


@pytest.mark.parametrize("strategy", NOT_OFFERED)
def test_what_prepare_will_refuse_the_other_doors_warn_of_in_its_words(
    strategy: str, prepare: Say, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parameters = gpu(strategy=strategy)
    refusal = prepare(parameters).partition(": request r0 ")[2]
    assert refusal.startswith(f"asks for sharing strategy {strategy}, which this driver does not offer")
    path = tmp_path / "claim.json"
    path.write_text(json.dumps(manifest(entry(parameters))))
    assert main(["validate", str(path)]) == 0
    assert capsys.readouterr().out == f"warning: {path}: ResourceClaim/mine {PATH}: {refusal}\n"
    reply = Door(DRIVER, lambda *_: None).answer(body(review(manifest(entry(parameters)))))
    response = json.loads(reply.body)["response"]
    assert (response["allowed"], response["warnings"]) == (True, [f"{PATH}: {refusal}"])
