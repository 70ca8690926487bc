"""What the documentation names is there: verbs and flags, make targets, chart values, links, manifests, our own words."""

from __future__ import annotations

import ast
import itertools
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from api.resource.objects import configurations
from deploy.helm.schema import CHART
from dra_driver.settings import TABLE
from tests.docs.pages import DOCS, PAGES, ROOT, anchors, blocks, commands, heredocs, links, prose, spans

BY_NAME = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
SETTINGS = {row.flag.removeprefix("--") for row in TABLE}
VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
# Keys below these are the user's or Kubernetes' own.
OPEN = (
    "kubeletPlugin.nodeSelector",
    "kubeletPlugin.affinity",
    "simulation.machines",
    "podMonitor.labels",
    "serviceMonitor.labels",
)


@cache
def help_of(*words: str) -> str:
    argv = [sys.executable, "-m", "dra_driver.cli.main", *words, "--help"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, f"dra-driver {' '.join(words)}: {done.stderr}"
    return done.stdout


def flags(text: str) -> set[str]:
    return set(re.findall(r"(?<![\w-])--?[a-zA-Z][\w-]*", text))


@BY_NAME
def test_links_lead_somewhere(page: Path) -> None:
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{link}: there is no {target}"
        if anchor:
            assert anchor in anchors(target), f"{link}: no such heading in {target.name}"


@BY_NAME
def test_verbs_and_flags_of_the_command_line_are_there(page: Path) -> None:
    for words in commands(page):
        if words[0] != "dra-driver" or len(words) == 1:
            continue
        verb, rest = words[1], words[2:]
        if verb.startswith("-"):
            assert verb in flags(help_of())
            continue
        assert re.search(rf"^    {re.escape(verb)}\b", help_of(), re.MULTILINE), (
            f"there is no verb in {' '.join(words)}"
        )
        said = help_of(verb)
        if verb == "simulate" and len(rest) > 1 and not rest[1].startswith("-"):
            assert re.search(rf"^    {re.escape(rest[1])}\b", said, re.MULTILINE), f"no verb in {' '.join(words)}"
            said += help_of(verb, "DIR", rest[1])
        for word in rest:
            if word.startswith("-") and word != "-":
                assert word.partition("=")[0] in flags(said), f"{' '.join(words)}: there is no {word}"


@BY_NAME
def test_make_targets_and_modules_are_there(page: Path) -> None:
    targets = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for words in commands(page):
        if words[0] == "make":
            wanted = {word for word in words[1:] if re.fullmatch(r"[a-z][a-z-]*", word)}
            assert wanted <= targets, f"{' '.join(words)}: no such target"
        if words[:2] == ["python", "-m"] and words[2].split(".")[0] in ("e2e", "tests", "deploy", "api", "dra_driver"):
            place = ROOT / words[2].replace(".", "/")
            assert place.with_suffix(".py").exists() or (place / "__main__.py").exists(), " ".join(words)


def value_exists(path: str) -> bool:
    if path.startswith(OPEN):
        return True
    if path.startswith("settings."):
        return path.removeprefix("settings.") in SETTINGS
    if path.startswith("nodeSettings."):
        return path == "nodeSettings.NODE" or path.rpartition(".")[2] in SETTINGS
    found: Any = VALUES
    for part in path.split("."):
        if not isinstance(found, dict) or part not in found:
            return False
        found = found[part]
    return True


@BY_NAME
def test_what_helm_is_told_to_set_is_a_value_of_the_chart(page: Path) -> None:
    for words in commands(page):
        if words[0] != "helm" or "OLD_CHART" in words:
            continue
        for flag, said in itertools.pairwise(words):
            if flag in ("--set", "--set-string"):
                path = said.partition("=")[0].replace("\\.", "_")
                assert value_exists(path), f"{said}: no such value"
        charts = [word for word in words if word.startswith("deploy/")]
        assert all((ROOT / chart / "Chart.yaml").exists() for chart in charts)


@pytest.mark.parametrize("page", DOCS, ids=lambda page: page.name)
def test_values_in_the_text_are_values_of_the_chart(page: Path) -> None:
    """`webhook.enabled`, `settings.rescan-s: 30`: dotted, and the first part is a value of ours."""
    moved = yaml.safe_load((CHART / "moved.yaml").read_text())
    for span in spans(page):
        path = re.split(r"[=:]", span)[0].strip()
        top, _, rest = path.partition(".")
        if top not in VALUES or not re.fullmatch(r"[\w.-]+", rest) or path.startswith("resources."):
            continue
        assert value_exists(path) or path in moved, f"{span}: no such value"


def objects(page: Path) -> Iterator[dict[str, Any]]:
    texts = [block.text for block in blocks(page) if block.language == "yaml"]
    for text in (*texts, *heredocs(page)):
        for document in yaml.safe_load_all(text):
            assert isinstance(document, dict), text
            yield document


@BY_NAME
def test_yaml_is_a_manifest_without_a_mistake_or_values_or_settings(page: Path) -> None:
    for item in objects(page):
        if "apiVersion" in item:
            assert "kind" in item
            wrong = [mistake for found in configurations(item, "gpu.nvidia.com") for mistake in found.mistakes()]
            assert not wrong, f"{item['kind']}: {wrong}"
        else:
            names = set(item)
            assert names <= set(VALUES) or names <= SETTINGS | {"nodes"}, f"{names} are neither values nor settings"
            for settings in (
                item.get("settings", {}),
                *item.get("nodeSettings", {}).values(),
                *item.get("nodes", {}).values(),
            ):
                assert set(settings) <= SETTINGS, f"{settings}: no such setting"


@cache
def our_words() -> str:
    """Every piece of text in the code, with … where a value is filled in; the chart's and the policies' sentences."""
    pieces = []
    for file in (*(ROOT / "dra_driver").rglob("*.py"), *(ROOT / "api").glob("resource/*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                pieces.append(node.value)
            elif isinstance(node, ast.JoinedStr):
                parts = [part.value if isinstance(part, ast.Constant) else "…" for part in node.values]
                pieces.append("".join(str(part) for part in parts))
    for file in (*(CHART / "templates").iterdir(), *(CHART / "manifests").iterdir()):
        pieces.append(re.sub(r"%[sdv]", "…", " ".join(file.read_text().split())))
    return "\n".join(pieces)


def quotes(page: Path) -> list[str]:
    """The sentences after `>`: this driver's own."""
    found = re.findall(r"^ *> (.+(?:\n *> .+)*)$", prose(page), re.MULTILINE)
    return [re.sub(r"\n *> ", " ", quote) for quote in found]


def is_ours(text: str) -> bool:
    """Each part between two … stands in the code; sentences are put together of parts with `: ` and `; `."""
    for piece in (part.strip(" :;") for part in text.split("…")):
        parts = [piece] if piece in our_words() else re.split(r"[:;] ", piece)
        if not all(part.strip(" :;()") in our_words() for part in parts):
            return False
    return True


@pytest.mark.parametrize("page", DOCS, ids=lambda page: page.name)
def test_what_is_quoted_as_ours_is_in_the_code(page: Path) -> None:
    for quote in quotes(page):
        assert is_ours(quote), f"{quote!r} is in no text of the code"


def test_troubleshooting_quotes_something() -> None:
    assert len(quotes(ROOT / "docs" / "troubleshooting.md")) > 20
    assert not is_ours("the GPU is on fire")


@pytest.mark.parametrize("page", DOCS, ids=lambda page: page.name)
def test_metrics_and_events_are_ours(page: Path) -> None:
    for span in spans(page):
        if match := re.match(r"(dra_driver_\w+?)(_total|_count|_sum|_bucket)?(\{|$)", span):
            whole = f"{match[1]}_info" if match[1] == "dra_driver_build" else match[1]
            assert whole in our_words() or re.fullmatch("dra_driver_(un)?prepare_seconds", whole), span
    table = prose(page).partition("\n## Events\n")[2]
    for names in re.findall(r"^\| (`[^|]+`) \| (?:claim|Node) \|", table, re.MULTILINE):
        for name in re.findall(r"`(\w+)`", names):
            assert name.removeprefix("Unprepare").removeprefix("Prepare") in our_words(), name


WRONG = {
    "link": ("[a](nowhere.md)", test_links_lead_somewhere),
    "anchor": ("# One\n\n[a](#two)", test_links_lead_somewhere),
    "verb": ("`dra-driver devise`", test_verbs_and_flags_of_the_command_line_are_there),
    "flag": (
        "```sh\nsudo dra-driver devices \\\n  --machin t4 | head\n```",
        test_verbs_and_flags_of_the_command_line_are_there,
    ),
    "in a pod": (
        "```sh\nkubectl -n $NS exec $(agent_of N) -- dra-driver devices --conf x\n```",
        test_verbs_and_flags_of_the_command_line_are_there,
    ),
    "simulate": ("`dra-driver simulate D lost 0`", test_verbs_and_flags_of_the_command_line_are_there),
    "target": ("```console\n$ A=b make golde\n```", test_make_targets_and_modules_are_there),
    "module": ("```sh\npython -m deploy.helm.scheme\n```", test_make_targets_and_modules_are_there),
    "value": ("```sh\nhelm upgrade x --set image.tagg=1\n```", test_what_helm_is_told_to_set_is_a_value_of_the_chart),
    "value in text": ("Set `webhook.tls.mod=own`.", test_values_in_the_text_are_values_of_the_chart),
    "setting in text": ("Set `settings.rescan-z: 3`.", test_values_in_the_text_are_values_of_the_chart),
    "yaml": ("```yaml\nimages: {}\n```", test_yaml_is_a_manifest_without_a_mistake_or_values_or_settings),
    "manifest": (
        (
            "```sh\ncat > x <<'EOF'\napiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {name: x}\nspec: {config: [{opaque: "
            "{driver: gpu.nvidia.com, parameters: {kind: GpuConfg}}}]}\nEOF\n```"
        ),
        test_yaml_is_a_manifest_without_a_mistake_or_values_or_settings,
    ),
    "quote": ("Text:\n\n> device … was eaten\n", test_what_is_quoted_as_ours_is_in_the_code),
    "metric": ("`dra_driver_gpus_eaten_total`", test_metrics_and_events_are_ours),
    "event": (
        "\n## Events\n\n| Event | On |\n|---|---|\n| `GPUEaten` | claim | x |\n",
        test_metrics_and_events_are_ours,
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_page_that_is_wrong_is_found(name: str, tmp_path: Path) -> None:
    text, check = WRONG[name]
    page = tmp_path / "page.md"
    page.write_text(text)
    with pytest.raises(AssertionError):
        check(page)


def test_every_right_mount_and_policy_of_the_agent_is_explained() -> None:
    text = (ROOT / "docs" / "security.md").read_text()
    daemonset = (CHART / "templates" / "daemonset.yaml").read_text()
    for name in re.findall(r"- \{name: ([\w-]+), mountPath", daemonset):
        assert f"`{name}`" in text, f"mount {name}"
    roles = [*yaml.safe_load_all((CHART / "manifests" / "rbac.yaml").read_text())]
    for rule in next(item for item in roles if item["kind"] == "ClusterRole")["rules"]:
        (resource,) = rule["resources"]
        lines = [line for line in text.splitlines() if line.startswith(f"| `{resource}`")]
        for verb in rule["verbs"]:
            assert any(re.search(rf"\b{verb}\b", line) for line in lines), f"{verb} of {resource}"
    for item in yaml.safe_load_all((CHART / "manifests" / "policy.yaml").read_text()):
        assert item["metadata"]["name"].removeprefix("dra-driver") in text, item["metadata"]["name"]
