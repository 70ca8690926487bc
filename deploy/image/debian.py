"""Which Debian packages the copied files are of, written where vulnerability scanners look; nothing on other systems."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

_DPKG = Path("/var/lib/dpkg")
_DOCUMENTS = Path("/usr/share/doc")


@dataclass(frozen=True, slots=True)
class Package:
    stanza: str  # of /var/lib/dpkg/status
    fields: Mapping[str, str]

    @property
    def name(self) -> str:
        return self.fields["Package"]

    @property
    def version(self) -> str:
        return self.fields["Version"]


def owners(files: Iterable[Path], database: Path = _DPKG) -> list[Package]:
    """Sorted by name. A file that no package has (Python in /usr/local) is left out."""
    wanted = {name for path in files for name in _names(path)}
    found = set()
    for listing in sorted((database / "info").glob("*.list")):
        if not wanted.isdisjoint(listing.read_text().splitlines()):
            found.add(listing.stem.split(":")[0])
    return [package for package in _status(database) if package.name in found]


def _names(path: Path) -> set[str]:
    """A library may be on record with or without /usr, and under the name of a link or of its target."""
    names = {str(path), str(path.resolve())}
    return names | {name.removeprefix("/usr") for name in names} | {f"/usr{name}" for name in names}


def _status(database: Path) -> list[Package]:
    try:
        stanzas = (database / "status").read_text().split("\n\n")
    except OSError:
        return []
    packages = []
    for stanza in stanzas:
        lines = [line for line in stanza.splitlines() if line and not line[0].isspace()]
        fields = {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}
        if "Package" in fields:
            packages.append(Package(stanza.strip() + "\n", fields))
    return sorted(packages, key=lambda package: package.name)


def put_records(root: Path, packages: Iterable[Package]) -> None:
    """As images without a package manager have them, with each package's copyright."""
    for package in packages:
        record = root / "var/lib/dpkg/status.d" / package.name
        record.parent.mkdir(parents=True, exist_ok=True)
        record.write_text(package.stanza)
        notice = _DOCUMENTS / package.name / "copyright"
        if notice.exists():
            place = root / "usr/share/doc" / package.name / "copyright"
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(notice.resolve(), place)
