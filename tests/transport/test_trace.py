"""A trace: bounded, with nothing lost of its sums."""

from __future__ import annotations

import threading
from itertools import count, pairwise

from vfl_node.transport.generated.vfl.v1 import session_pb2
from vfl_node.transport.memory import memory_channels, run_together
from vfl_node.transport.trace import MOST_MARKS, MOST_SUMS, Trace


def frame(phase: str = "train", number: int = 0, size: int = 10) -> session_pb2.Frame:
    return session_pb2.Frame(phase=phase, sequence=number, type="vfl.v1.Chunk", body=b"x" * size)


def test_both_ends_of_a_conversation_trace_the_same_messages() -> None:
    a, b = memory_channels("clinic", "lab")
    for channel in (a, b):
        channel.trace = Trace(count(step=1000).__next__)

    async def ask() -> None:
        async with a.phase("ask"):
            await a.send(session_pb2.Chunk(rows=b"question"))
            await a.receive(session_pb2.Chunk)

    async def answer() -> None:
        async with b.phase("ask"):
            await b.receive(session_pb2.Chunk)
            await b.send(session_pb2.Chunk(rows=b"a long answer " * 10_000))  # a frame that travels in parts

    assert run_together((ask(), a), (answer(), b)) == [None, None]
    sent, come = ([each for each in a.trace.messages if each.sent], [each for each in b.trace.messages if not each.sent])
    assert [each.kind for each in sent] == [each.kind for each in come] == ["Chunk", "PhaseEnd"]
    for one, other in ((a, b), (b, a)):
        left = [each[2:7] for each in one.trace.messages if each.sent]
        assert left == [each[2:7] for each in other.trace.messages if not each.sent]
        assert sum(size for *_, size in left) == one.traffic["ask"].bytes_sent == other.traffic["ask"].bytes_received
    assert all(each.since < each.until for each in (*a.trace.messages, *b.trace.messages))


def test_what_is_too_old_is_added_up() -> None:
    trace = Trace(count(step=1000).__next__, most=3)
    for number in range(4):
        for phase, sent in (("align", True), ("align", False), ("train", True)):
            trace.add("lab", 1, frame(phase, number, 10 * number), trace.now(), sent=sent)
    messages, _, sums = trace.copy()
    assert [(each.phase, each.number) for each in messages] == [("align", 3), ("align", 3), ("train", 3)]
    assert [each.phase for each in sums] == ["align", "train"] * 3
    assert (sum(each.sent for each in sums), sum(each.received for each in sums)) == (6, 3)
    sizes = [frame("align", number, 10 * number).ByteSize() for number in range(3)]
    assert sum(each.bytes_received for each in sums) == sum(sizes)
    assert all(each.waited > 0 for each in sums if each.received)
    assert all(before.until <= after.since for before, after in pairwise(sums))
    sums[0].sent = 100
    assert trace.sums[0].sent == 1


def test_nothing_grows_without_end() -> None:
    trace = Trace(most=5)
    for number in range(MOST_SUMS + 20):
        trace.add("lab", 1, frame(f"batch {number}", number), trace.now(), sent=True)
    for _ in range(MOST_MARKS + 20):
        trace.mark("epoch")
    assert (len(trace.messages), len(trace.sums), len(trace.marks)) == (5, MOST_SUMS, MOST_MARKS)
    assert trace.marks[-1].number == MOST_MARKS + 20


def test_epochs_are_counted_in_their_phase() -> None:
    trace = Trace()
    trace.begin("train")
    trace.mark("epoch")
    trace.mark("epoch")
    trace.begin("train")
    trace.mark("epoch")
    assert [mark[1:] for mark in trace.marks] == [("train", 0), ("epoch", 1), ("epoch", 2), ("train", 0), ("epoch", 1)]


def test_conversations_of_several_threads_share_a_trace() -> None:
    trace = Trace(most=10)

    def talk(peer: str) -> None:
        for number in range(2000):
            trace.add(peer, 1, frame(number=number), trace.now(), sent=True)

    threads = [threading.Thread(target=talk, args=(peer,)) for peer in ("clinic", "lab", "bank")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    messages, _, sums = trace.copy()
    assert len(messages) == 10
    assert {each.peer for each in sums} == {"clinic", "lab", "bank"}
    assert len(messages) + sum(each.sent for each in sums) == 6000
