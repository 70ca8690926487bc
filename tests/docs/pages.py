"""What is in the documentation: its pages, fenced blocks, commands and words in code."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PAGES = sorted((*(ROOT / "docs").glob("*.md"), ROOT / "README.md", ROOT / "deploy" / "examples" / "README.md"))
DOCS = [page for page in PAGES if page.parent.name == "docs"]

_FENCE = re.compile(r"^([ >]*)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_HEREDOC = re.compile(r"<<-?\s*'?(\w+)'?.*?\n(.*?)^\1$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!!)\[[^\]\n]*(?:\n[^\]\n]*)?\]\(([^)\s]+)\)")
_CODE = re.compile(r"`([^`\n]+(?:\n[^`\n]+)?)`")
_SHELL = ("sh", "console", "bash")


@dataclass(frozen=True)
class Block:
    page: Path
    language: str
    text: str


def blocks(page: Path) -> list[Block]:
    return [Block(page, match[2], match[3]) for match in _FENCE.finditer(page.read_text())]


def prose(page: Path) -> str:
    return _FENCE.sub("", page.read_text())


def spans(page: Path) -> list[str]:
    """What stands in backquotes, on one line each."""
    return [" ".join(span.split()) for span in _CODE.findall(prose(page))]


def links(page: Path) -> list[str]:
    return [target for target in _LINK.findall(prose(page)) if not re.match(r"[a-z]+:", target)]


def anchors(page: Path) -> set[str]:
    """As GitHub makes them of headings."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    plain = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower() for heading in headings]
    return {re.sub(r"[^\w\- ]", "", heading).strip().replace(" ", "-") for heading in plain}


def heredocs(page: Path) -> list[str]:
    """Files that the reader writes."""
    return [match[2] for block in blocks(page) if block.language in _SHELL for match in _HEREDOC.finditer(block.text)]


def commands(page: Path) -> Iterator[list[str]]:
    """Every simple command of the shell blocks, and those that stand in backquotes in the text, as words."""
    for block in blocks(page):
        if block.language in _SHELL:
            yield from _simple(_typed(block))
    for span in spans(page):
        if re.match(r"(dra-driver|make|helm|python -m|issues) ", span):
            yield from _simple(span)


def _typed(block: Block) -> str:
    text = _HEREDOC.sub("\n", block.text)
    if block.language == "console":
        text = "\n".join(line[2:] for line in text.splitlines() if line.startswith("$ "))
    return text.replace("\\\n", " ")


def _simple(text: str) -> Iterator[list[str]]:
    for line in text.splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars="();<>|&")
        lexer.whitespace_split = True
        words: list[str] = []
        for word in (*lexer, ";"):
            if word and set(word) <= set("();|&"):
                yield from _without_prefixes(words)
                words = []
            else:
                words.append(word)


def _without_prefixes(words: Sequence[str]) -> Iterator[list[str]]:
    rest = list(words)
    while rest and (rest[0] in ("sudo", "-E", "nice", "time", "exec", "{", "}") or re.match(r"\w+=", rest[0])):
        rest.pop(0)
    if "--" in rest:  # kubectl exec: what runs in the pod
        yield from _without_prefixes(rest[rest.index("--") + 1 :])
    elif rest:
        yield rest
