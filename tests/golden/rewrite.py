"""`python -m tests.golden.rewrite`: writes the golden files anew. Read the difference before it is committed."""

from __future__ import annotations

import sys

from tests.golden.produce import FILES, HERE


def main() -> int:
    for name, produce in FILES.items():
        text, path = produce(), HERE / name
        changed = not path.exists() or path.read_text() != text
        path.write_text(text)
        print(f"{path.relative_to(HERE.parent.parent)}: {'rewritten' if changed else 'as it was'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
