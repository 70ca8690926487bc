"""The version of the driver before this one, out of the repository's own history: what is upgraded from, and downgraded to."""

from __future__ import annotations

import subprocess
from pathlib import Path

from e2e.cluster import ClusterError
from e2e.installation import ROOT

# The last commit of the day before this version. Of all that came since, this is what two versions on one node may fall out
# over: its ledger records have the same fields in another layout, and it works on the claims of a call by other threads.
# It is another one from the next release on: the commit of the release before.
BEFORE = "363bebaf9e22bed5ba5e42712a287f0d28b144b6"


class NoHistory(ClusterError):
    """The source of that version is not to be had here; the message says how to get it."""


def version_before(directory: Path, repository: Path = ROOT, commit: str = BEFORE) -> Path:
    """Puts its source tree into `directory`, which is made, and returns it. NoHistory in a shallow clone or without git."""
    archive = directory.with_name(f"{directory.name}.tar")
    archive.parent.mkdir(parents=True, exist_ok=True)
    try:
        _run("git", "-C", str(repository), "archive", "--output", str(archive), commit)
    except (OSError, subprocess.CalledProcessError) as error:
        why = error.stderr.strip() if isinstance(error, subprocess.CalledProcessError) else error
        raise NoHistory(
            f"taking the version before this one (commit {commit[:12]}) out of the history of {repository}: {why}; "
            f"get the history with `git -C {repository} fetch --unshallow`, or clone the repository whole, with git installed"
        ) from error
    directory.mkdir()
    _run("tar", "-x", "-f", str(archive), "-C", str(directory))
    archive.unlink()
    return directory


def _run(*argv: str) -> None:
    subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60)
