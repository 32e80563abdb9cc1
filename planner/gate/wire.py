"""Messages between the gate and a candidate's process: a short frame, JSON, and file descriptors beside it.

Nothing of a message is executed or unpickled. Whoever reads one from a candidate's process must expect anything.
"""

import json
import os
import socket
import struct
from collections.abc import Callable, Sequence
from typing import Any

FRAME = struct.Struct("<4sI")
MAGIC = b"qrpg"
MOST_BYTES = 64 << 20
MOST_FDS = 2


class Closed(Exception):
    """The other side has closed the channel."""


class Forged(Exception):
    """Something came that the protocol does not know."""


def send(channel: socket.socket, message: dict[str, Any], fds: Sequence[int] = ()) -> None:
    send_encoded(channel, encode(message), fds)


def encode(message: dict[str, Any]) -> bytes:
    text = json.dumps(message, separators=(",", ":")).encode()
    return FRAME.pack(MAGIC, len(text)) + text


def send_encoded(channel: socket.socket, data: bytes, fds: Sequence[int] = ()) -> None:
    """Raises Closed, and TimeoutError where the channel has a timeout and the other side does not read."""
    try:
        sent = socket.send_fds(channel, [data], fds) if fds else 0
        channel.sendall(data[sent:])
    except (BrokenPipeError, ConnectionResetError):
        raise Closed from None


def receive(channel: socket.socket, wait: Callable[[], None] = lambda: None) -> tuple[bytes, list[int]]:
    """The JSON text and the descriptors of the next message; the caller closes those.

    `wait` is called before each read; it returns once there is something to read, or raises. Raises Closed and Forged.
    """
    fds: list[int] = []
    try:
        magic, length = FRAME.unpack(read_exactly(channel, FRAME.size, wait, fds))
        if magic != MAGIC or length > MOST_BYTES or len(fds) > MOST_FDS:
            raise Forged("a message does not begin as messages do")
        return read_exactly(channel, length, wait, fds), fds
    except BaseException:
        for fd in fds:
            os.close(fd)
        raise


def read_exactly(channel: socket.socket, count: int, wait: Callable[[], None], fds: list[int]) -> bytes:
    """`count` bytes; descriptors that come with them are added to `fds`."""
    data = bytearray()
    while len(data) < count:
        wait()
        try:
            part, new, flags, _ = socket.recv_fds(channel, count - len(data), MOST_FDS)
        except ConnectionResetError:
            raise Closed from None
        fds += new
        if flags & socket.MSG_CTRUNC:
            raise Forged("a message carries too many file descriptors")
        if not part:
            raise Closed
        data += part
    return bytes(data)
