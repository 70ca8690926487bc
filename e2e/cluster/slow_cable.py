"""Hands frames from one network interface to another and back, each after a delay: `slow_cable.py IFACE IFACE SECONDS`.

The kernel's netem would do the same, but not every kernel has it. Standard library only: it runs by its path, in the network
namespace of the control plane, until it is killed or one of the interfaces goes.
"""

from __future__ import annotations

import select
import socket
import struct
import sys
import time
from collections import deque

# linux/if_ether.h, linux/if_packet.h, linux/socket.h
ETH_P_ALL = 0x0003
SOL_PACKET = 263
PACKET_ADD_MEMBERSHIP, PACKET_MR_PROMISC = 1, 1
PACKET_VNET_HDR = 15
PACKET_IGNORE_OUTGOING = 23
SO_RCVBUFFORCE = 33
QUEUE_BYTES = 8 << 20
FRAME_BYTES = 70_000  # segments that the card would cut up come whole, up to 64 KiB


def tap(interface: str) -> socket.socket:
    """Sees every frame that comes in on the interface; what is sent to it goes out."""
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    # Each frame carries what the kernel has left to do (checksum, cutting up), and the other end does it.
    opened.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
    opened.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
    opened.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, QUEUE_BYTES)
    opened.bind((interface, ETH_P_ALL))
    everything = struct.pack("iHH8s", socket.if_nametoindex(interface), PACKET_MR_PROMISC, 0, b"")
    opened.setsockopt(SOL_PACKET, PACKET_ADD_MEMBERSHIP, everything)
    return opened


def carry(one: socket.socket, other: socket.socket, seconds: float) -> None:
    """For ever. The delay is the same for all, so the first to come is the first to go."""
    waiting: deque[tuple[float, socket.socket, bytes]] = deque()
    while True:
        patience = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        readable, _, _ = select.select([one, other], [], [], patience)
        for source in readable:
            frame = source.recv(FRAME_BYTES)
            waiting.append((time.monotonic() + seconds, other if source is one else one, frame))
        while waiting and waiting[0][0] <= time.monotonic():
            _, target, frame = waiting.popleft()
            target.send(frame)


def main() -> None:
    one, other, seconds = sys.argv[1:]
    carry(tap(one), tap(other), float(seconds))


if __name__ == "__main__":
    main()
