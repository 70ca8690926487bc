"""`python -m deploy.image`: the image's root, of packages that pip has put into a directory."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from deploy.image.root import ImageError, Parts, make_root


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m deploy.image", description=__doc__)
    parser.add_argument("root", type=Path, help="directory to make; must not exist")
    parser.add_argument(
        "--packages", type=Path, required=True, help="where `pip install --target` put requirements.lock"
    )
    parser.add_argument("--tools", type=Path, help="the same of build.lock; without it nvidia-smi is the shell script")
    arguments = parser.parse_args()
    source = Path(__file__).resolve().parent.parent.parent
    time = int(os.environ.get("SOURCE_DATE_EPOCH") or 0)
    try:
        make_root(arguments.root, Parts(source, arguments.packages, arguments.tools), time)
    except ImageError as error:
        print(f"deploy.image: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
