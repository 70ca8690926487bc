"""`python -m tests.golden.rewrite`: writes the golden files, and the pages of docs/ that are made of tables, anew. Read the difference before it is committed."""

from __future__ import annotations

import sys

from tests.docs.references import PAGES
from tests.golden.produce import FILES, ROOT


def main() -> int:
    for name, produce in {**FILES, **PAGES}.items():
        text, path = produce(), ROOT / name
        changed = not path.exists() or path.read_text() != text
        path.write_text(text)
        print(f"{name}: {'rewritten' if changed else 'as it was'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
