"""The channel between the gate and a candidate's process: whole messages, or Closed, or Forged."""

import json
import os
import socket
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qrprof.planner.gate import wire

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(st.lists(st.dictionaries(st.text(), JSON, max_size=4), min_size=1, max_size=3))
def test_messages_come_as_they_were_sent(messages: list[dict[str, Any]]) -> None:
    here, there = socket.socketpair()
    with here, there:
        for message in messages:
            wire.send(here, message)
        assert [json.loads(wire.receive(there)[0]) for _ in messages] == messages


def test_a_message_larger_than_the_sockets_buffer_comes_whole() -> None:
    here, there = socket.socketpair()
    message = {"text": "x" * (4 << 20)}
    with here, there:
        sender = threading.Thread(target=wire.send, args=(here, message))
        sender.start()
        assert json.loads(wire.receive(there)[0]) == message
        sender.join()


def test_descriptors_come_along() -> None:
    here, there = socket.socketpair()
    with here, there:
        fd = os.memfd_create("x")
        os.write(fd, b"known")
        wire.send(here, {}, [fd])
        os.close(fd)
        _, (received,) = wire.receive(there)
        assert os.pread(received, 5, 0) == b"known"
        os.close(received)


@given(st.binary(min_size=wire.FRAME.size, max_size=64).filter(lambda data: not data.startswith(wire.MAGIC)))
def test_anything_else_is_forged(data: bytes) -> None:
    here, there = socket.socketpair()
    with here, there:
        here.sendall(data)
        with pytest.raises(wire.Forged):
            wire.receive(there)


def test_a_message_that_would_be_too_long_is_forged() -> None:
    here, there = socket.socketpair()
    with here, there:
        here.sendall(wire.FRAME.pack(wire.MAGIC, wire.MOST_BYTES + 1))
        with pytest.raises(wire.Forged):
            wire.receive(there)


def test_more_descriptors_than_a_message_has_are_forged_and_closed() -> None:
    here, there = socket.socketpair()
    with here, there:
        reader, writer = os.pipe()
        socket.send_fds(here, [wire.encode({})], [writer] * 50)
        os.close(writer)
        with pytest.raises(wire.Forged):
            wire.receive(there)
        assert os.read(reader, 1) == b""  # the end of a file: no writer is left
        os.close(reader)


@pytest.mark.parametrize("sent", [0, 3, wire.FRAME.size, wire.FRAME.size + 1])
def test_a_channel_that_ends_early_is_closed(sent: int) -> None:
    here, there = socket.socketpair()
    with there:
        with here:
            here.sendall(wire.encode({"a": 1})[:sent])
        with pytest.raises(wire.Closed):
            wire.receive(there)
        with pytest.raises(wire.Closed):
            wire.send(there, {"a": 1})


def test_waiting_happens_before_each_read() -> None:
    here, there = socket.socketpair()

    def never() -> None:
        raise TimeoutError

    with here, there:
        wire.send(here, {})
        with pytest.raises(TimeoutError):
            wire.receive(there, never)
