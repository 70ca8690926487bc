"""Writes the smallest ELF64 shared object that the dynamic loader and ldconfig take for a library of a given SONAME.

It holds no code: what a simulated driver library does is done elsewhere. Format: System V gABI, chapters 4 and 5.
"""

from __future__ import annotations

import struct
from typing import Final

MACHINES: Final = {"x86_64": 62, "aarch64": 183}  # e_machine
_SHARED: Final = 3  # e_type ET_DYN
_LOAD, _DYNAMIC, _STACK = 1, 2, 0x6474E551
_READ_WRITE: Final = 6  # older loaders relocate the dynamic section in place
_NEEDED, _HASH, _STRTAB, _SYMTAB, _STRSZ, _SYMENT, _SONAME = 1, 4, 5, 6, 10, 11, 14
_HEADER, _PROGRAM, _SYMBOL, _PAGE = 64, 56, 24, 0x1000


def shared_object(soname: str, arch: str, trailer: bytes = b"") -> bytes:
    """`trailer` is appended after the object: the loader never looks there."""
    names = b"\0" + soname.encode() + b"\0libc.so.6\0"  # libc.so.6: by which ldconfig knows a library of glibc
    hash_at = _HEADER + 3 * _PROGRAM
    symbols_at = hash_at + 16
    names_at = symbols_at + _SYMBOL
    dynamic_at = (names_at + len(names) + 7) // 8 * 8
    entries = (
        (_NEEDED, len(soname) + 2),
        (_SONAME, 1),
        (_HASH, hash_at),
        (_STRTAB, names_at),
        (_SYMTAB, symbols_at),
        (_STRSZ, len(names)),
        (_SYMENT, _SYMBOL),
        (0, 0),
    )
    dynamic = b"".join(struct.pack("<QQ", tag, value) for tag, value in entries)
    end = dynamic_at + len(dynamic)
    header = struct.pack(
        "<16sHHIQQQIHHHHHH",
        b"\x7fELF\x02\x01\x01",  # 64 bit, little endian, version 1
        *(_SHARED, MACHINES[arch], 1, 0, _HEADER, 0, 0, _HEADER, _PROGRAM, 3, 0, 0, 0),
    )
    programs = b"".join(
        struct.pack("<IIQQQQQQ", kind, _READ_WRITE, start, start, start, size, size, align)
        for kind, start, size, align in (
            (_LOAD, 0, end, _PAGE),
            (_DYNAMIC, dynamic_at, len(dynamic), 8),
            (_STACK, 0, 0, 16),
        )
    )
    hashes = struct.pack("<4I", 1, 1, 0, 0)  # one bucket, one symbol: the null symbol
    body = header + programs + hashes + bytes(_SYMBOL) + names
    return body.ljust(dynamic_at, b"\0") + dynamic + trailer
