"""Reads and writes the ctypes arguments of a C call, as the C library would: by address, size and bytes.

Nothing here knows the structures of pynvml. What is written is packed by the layout of nvml.h, so that a structure
declared wrongly on the other side shows. A wrong type is what would crash a real process, so it raises TypeError.
"""

from __future__ import annotations

import ctypes
from typing import Any

from dra_driver.hardware.sim.codes import Code, Refused


def number(argument: Any) -> int:
    """An integer passed by value."""
    value = argument if isinstance(argument, int) else getattr(argument, "value", None)
    if not isinstance(value, int):
        raise TypeError(f"expected an integer argument, got {argument!r}: the real library would read garbage")
    return value


def text(argument: Any) -> str:
    """A `const char *`."""
    value = argument if isinstance(argument, bytes) else getattr(argument, "value", None)
    if value is None:
        raise Refused(Code.INVALID_ARGUMENT)
    if not isinstance(value, bytes):
        raise TypeError(f"expected a char pointer, got {argument!r}: the real library would read garbage")
    return value.decode(errors="replace")


def handle(argument: Any) -> int:
    """The value of an opaque pointer passed by value; 0 for NULL."""
    if argument is None:
        return 0
    if isinstance(argument, int):
        return argument
    return ctypes.c_void_p.from_buffer(argument).value or 0


def address(argument: Any, size: int) -> int:
    """Where an out argument points to, with at least `size` bytes there; NULL is INVALID_ARGUMENT."""
    target = getattr(argument, "_obj", argument)  # byref() keeps what it refers to in _obj
    if target is argument and isinstance(target, ctypes._Pointer):
        if not target:
            raise Refused(Code.INVALID_ARGUMENT)
        target = target.contents
    if target is None:
        raise Refused(Code.INVALID_ARGUMENT)
    try:
        room = ctypes.sizeof(target)
    except TypeError:
        raise TypeError(f"expected a pointer, got {argument!r}: the real library would crash here") from None
    if room < size:
        raise TypeError(f"{target!r} has {room} bytes and {size} are written: the real library would overrun it")
    return ctypes.addressof(target)


def put_int(argument: Any, value: int) -> None:
    """An int or unsigned int, 4 bytes."""
    ctypes.c_uint32.from_address(address(argument, 4)).value = value & 0xFFFFFFFF


def put_long(argument: Any, value: int) -> None:
    """An unsigned long long, 8 bytes."""
    ctypes.c_uint64.from_address(address(argument, 8)).value = value


def put_handle(argument: Any, value: int) -> None:
    ctypes.c_uint64.from_address(address(argument, 8)).value = value


def put_bytes(argument: Any, data: bytes, offset: int = 0) -> None:
    ctypes.memmove(address(argument, offset + len(data)) + offset, data, len(data))


def put_text(argument: Any, length: Any, value: str) -> None:
    """A string with its NUL into a buffer of `length` bytes."""
    data = value.encode() + b"\0"
    if len(data) > number(length):
        raise Refused(Code.INSUFFICIENT_SIZE)
    put_bytes(argument, data)


def read_int(argument: Any) -> int:
    return ctypes.c_uint32.from_address(address(argument, 4)).value


def read_bytes(argument: Any, size: int) -> bytes:
    return ctypes.string_at(address(argument, size), size)


def struct_version(argument: Any, *known: int) -> int:
    """The version word at the head of a structure: one of `known` (size | version << 24), or a mismatch."""
    word = read_int(argument)
    if word not in known:
        raise Refused(Code.ARGUMENT_VERSION_MISMATCH)
    return word >> 24


def put_row(array: Any, count: Any, rows: list[bytes]) -> None:
    """An array and its in/out length: NULL array asks for the length, a short one is INSUFFICIENT_SIZE."""
    if array is None:
        put_int(count, len(rows))
        return
    room = read_int(count)
    put_int(count, len(rows))
    if room < len(rows):
        raise Refused(Code.INSUFFICIENT_SIZE)
    put_bytes(array, b"".join(rows))
