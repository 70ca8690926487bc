"""Reads a glibc `ld.so.cache`, to find drivers in directories that no list foresees.

Format: glibc `sysdeps/generic/dl-cache.h`: an optional old part (`ld.so-1.7.0`), then `glibc-ld.so.cache1.1`, 48 bytes
of header, 24 bytes an entry, strings at offsets from the start of that header. Little-endian here and on every GPU node.
"""

from __future__ import annotations

import struct

_OLD_MAGIC = b"ld.so-1.7.0\0"
_MAGIC = b"glibc-ld.so.cache1.1"
_HEADER = struct.Struct("<20sII")
_ENTRY = struct.Struct("<IIIIQ")
_HEADER_BYTES = 48
_ABI_MASK = 0xFF00
_ABIS = frozenset({0x0300, 0x0A00})  # 64-bit x86 and ARM; the others are 32-bit twins of the same names


def library_paths(cache: bytes, name: str) -> tuple[str, ...]:
    """Where the 64-bit libraries of this SONAME are, as the cache lists them; empty for a file of another format."""
    try:
        start = _start(cache)
        magic, count, _ = _HEADER.unpack_from(cache, start)
        if magic != _MAGIC:
            return ()
        wanted = name.encode() + b"\0"
        found = []
        for number in range(count):
            flags, key, value, _, _ = _ENTRY.unpack_from(cache, start + _HEADER_BYTES + number * _ENTRY.size)
            if flags & _ABI_MASK in _ABIS and cache.startswith(wanted, start + key):
                found.append(cache[start + value : cache.index(b"\0", start + value)].decode("utf-8", "replace"))
    except (struct.error, ValueError):
        return ()
    return tuple(dict.fromkeys(found))


def _start(cache: bytes) -> int:
    if not cache.startswith(_OLD_MAGIC):
        return 0
    (count,) = struct.unpack_from("<I", cache, len(_OLD_MAGIC))
    end = len(_OLD_MAGIC) + 4 + 12 * count
    return int(end + 7 & ~7)
