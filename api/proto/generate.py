"""Writes `pb/` anew from the .proto files beside this one: `python -m api.proto.generate [DIRECTORY]`.

Needs grpcio-tools in the version of pyproject.toml: generated code refuses any runtime older than its generator, so it is
made with the oldest toolchain that is supported, and committed.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent

# The folder under which protoc finds the .proto files is given this name, because it writes `import a.b.c` by it.
_PACKAGE = "api/proto/pb"


def generate(root: Path) -> list[Path]:
    """Writes `root/api/proto/pb/*_pb2.py`, `*_pb2.pyi` and `*_pb2_grpc.py`; returns them sorted.

    ImportError without grpcio-tools, RuntimeError when protoc refuses (it says why on stderr).
    """
    from grpc_tools import protoc  # type: ignore[import-untyped]  # it comes without types

    names = sorted(path.name for path in HERE.glob("*.proto"))
    out = root / _PACKAGE
    out.mkdir(parents=True, exist_ok=True)
    status = protoc.main(
        [
            "protoc",
            f"-I{_PACKAGE}={HERE}",
            f"--python_out={root}",
            f"--pyi_out={root}",
            f"--grpc_python_out={root}",
            *(f"{_PACKAGE}/{name}" for name in names),
        ]
    )
    if status != 0:
        raise RuntimeError(
            f"generating gRPC code into {out}: protoc ended with status {status}; its reason is on stderr"
        )
    return sorted(path for path in out.iterdir() if "_pb2" in path.name)


def main(arguments: Sequence[str]) -> int:
    generate(Path(arguments[0]) if arguments else HERE.parents[1])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
