"""Identities that look random and are not: the same machine, seed and slot always give the same UUID and serial."""

from __future__ import annotations

import os


def gpu_uuid(machine: str, seed: str, pci: str) -> str:
    return f"GPU-{_uuid(_digest(machine, seed, pci, 'uuid')[:16])}"


def gpu_serial(machine: str, seed: str, pci: str) -> str:
    """13 digits, as data-centre boards have."""
    number = int.from_bytes(_digest(machine, seed, pci, "serial")[:8], "big")
    return f"1{number % 10**12:012d}"


def new_mig_uuid() -> str:
    """Fresh for each compute instance: a real driver never gives one out twice."""
    return f"MIG-{_uuid(os.urandom(16))}"


def new_boot_id() -> str:
    return _uuid(os.urandom(16))


def _digest(*parts: str) -> bytes:
    import hashlib  # only when a machine is made: it loads OpenSSL

    return hashlib.sha256("\0".join(parts).encode()).digest()


def _uuid(raw: bytes) -> str:
    """As uuid4: version and variant bits set. (The uuid module is not worth its memory here.)"""
    marked = raw[:6] + bytes([raw[6] & 0x0F | 0x40, raw[7], raw[8] & 0x3F | 0x80]) + raw[9:]
    text = marked.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
