"""The queues between a party's thread and a transport, without a transport."""

from __future__ import annotations

import threading
import weakref
from typing import Any

import pytest

from vfl_node.errors import Cancelled, PeerLost, ProtocolError
from vfl_node.transport.channel import run
from vfl_node.transport.frames import PIECE_BYTES, make_frame, pieces_of
from vfl_node.transport.generated.vfl.v1.session_pb2 import Abort, Beat, Chunk, Frame, Notice
from vfl_node.transport.link_stream import LinkStream
from vfl_node.transport.piece_queue import PieceQueue
from vfl_node.transport.streams import Stream, StreamPipe


def small(limit_bytes: int = 1000) -> Stream[Chunk]:
    return Stream("lab", Chunk, lambda pieces: Chunk.FromString(b"".join(pieces)), limit_bytes=limit_bytes, close_s=0.05)


def blocked(work: Any) -> tuple[threading.Thread, list[BaseException]]:
    """Run ``work`` on a thread and check that it does not end by itself."""
    errors: list[BaseException] = []

    def catch() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - it is the result
            errors.append(error)

    thread = threading.Thread(target=catch, daemon=True)
    thread.start()
    thread.join(0.1)
    assert thread.is_alive(), "it should wait"
    return thread, errors


def fill(stream: Stream[Chunk]) -> int:
    """Put until the queue is full; returns how many messages it took."""
    for count in range(1000):
        if not stream._outgoing.has_room((bytes(102),)):
            return count
        stream._put(Chunk(rows=bytes(100)))
    raise AssertionError("the queue has no bound")


def test_put_waits_while_the_queue_is_full_and_goes_on_when_it_drains() -> None:
    stream = small()
    assert fill(stream) == 4  # (102 + 128) bytes each
    thread, errors = blocked(lambda: stream._put(Chunk(rows=bytes(100))))
    leaving = stream.outgoing()
    next(leaving)
    thread.join(240)
    assert not thread.is_alive()
    assert not errors


def test_what_leaves_does_not_wake_who_waits_for_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would look in vain, and hold up the thread that sends."""
    pipe, looks = StreamPipe("lab"), list[bool]()
    can_get = pipe.can_get
    monkeypatch.setattr(pipe, "can_get", lambda: looks.append(True) or can_get())
    pipe.accept()
    thread, errors = blocked(lambda: run(pipe.get()))
    before, leaving = len(looks), pipe.outgoing()
    for number in range(3):
        run(pipe.put(Frame(sequence=number)))
        next(leaving)
    thread.join(0.1)
    assert (before, len(looks)) == (1, 1)
    pipe.arrive([Frame(sequence=1).SerializeToString()])
    thread.join(240)
    assert not errors
    assert len(looks) == 2


def test_a_message_above_the_limit_passes_alone() -> None:
    stream = small(10)
    stream._put(Chunk(rows=bytes(100)))
    blocked(lambda: stream._put(Chunk()))


def test_all_pieces_of_a_message_count() -> None:
    pipe, frame, count = StreamPipe("lab"), make_frame(Frame(), bytes(3 << 20)), 0
    while pipe._outgoing.has_room(pieces_of(frame)):
        run(pipe.put(frame))
        count += 1
    assert count == 5  # of 3 MiB and some bytes in 16 MiB


def test_a_flood_of_empty_messages_is_bounded_too() -> None:
    stream = small(1000)
    thread, _ = blocked(lambda: stream.arrive(b"" for _ in range(10**6)))
    assert len(stream._inbox) == 1000 // 128
    stream.cancel(Cancelled("enough"))
    thread.join(240)
    assert not thread.is_alive()


def test_what_arrived_is_read_before_the_end_is_seen() -> None:
    stream = small()
    stream.arrive([Chunk(offset=1).SerializeToString(), Chunk(offset=2).SerializeToString()])
    stream.end(PeerLost("gone"))
    stream.end(PeerLost("a later reason"))
    assert [stream._get().offset, stream._get().offset] == [1, 2]  # type: ignore[union-attr]
    with pytest.raises(PeerLost, match="gone"):
        stream._get()
    with pytest.raises(PeerLost, match="gone"):
        stream._put(Chunk())


def test_nothing_leaves_once_the_peer_has_gone() -> None:
    stream = small()
    stream._put(Chunk())
    stream.end(PeerLost("gone"))
    assert list(stream.outgoing()) == []


def test_what_arrives_after_a_cancellation_is_dropped_so_that_the_peer_is_not_held_up() -> None:
    stream = small()
    stream.cancel(Cancelled("stop"))
    stream.arrive(bytes(100) for _ in range(100))
    assert not stream._inbox


def test_a_loss_wakes_a_blocked_put() -> None:
    stream = small()
    fill(stream)
    thread, errors = blocked(lambda: stream._put(Chunk(rows=bytes(100))))
    stream.finish()
    thread.join(240)
    assert isinstance(errors[0], PeerLost)
    assert "lab" in str(errors[0])


def test_cancel_wakes_a_blocked_get_for_good() -> None:
    pipe = StreamPipe("lab")
    thread, errors = blocked(lambda: run(pipe.get()))
    pipe.cancel(Cancelled("stop"))
    pipe.cancel(Cancelled("a later wish"))
    thread.join(240)
    assert str(errors[0]) == "stop [E_CANCELLED]"
    with pytest.raises(Cancelled, match="stop"):
        run(pipe.get())


def test_who_pauses_hears_of_a_cancellation_as_of_a_loss() -> None:
    """The party that waits for its owner, or for its own other conversation, listens to nobody."""
    cancelled, lost = StreamPipe("lab"), StreamPipe("lab")
    for pipe in (cancelled, lost):
        run(pipe.pause())
    cancelled.cancel(Cancelled("stop"))
    lost.end(PeerLost("gone"))
    with pytest.raises(Cancelled, match="stop"):
        run(cancelled.pause())
    with pytest.raises(PeerLost, match="gone"):
        run(lost.pause())


@pytest.mark.parametrize("gone", ["lost", "cancelled", "neither"])
def test_who_waits_for_a_bell_is_woken_by_it_and_by_the_end(gone: str) -> None:
    """By events alone: nobody sleeps and looks again."""
    pipe, other, bell = StreamPipe("lab"), StreamPipe("shop"), threading.Event()

    def wait() -> None:
        for each in (pipe, other, pipe):
            each.watch(bell)
        run(pipe.pause(bell))
        run(pipe.pause(bell))  # the bell is still set

    thread, errors = blocked(wait)
    if gone == "lost":
        pipe.end(PeerLost("gone"))
    elif gone == "cancelled":
        pipe.cancel(Cancelled("stop"))
    else:
        bell.set()
    thread.join(240)
    assert not thread.is_alive()
    assert [error.code for error in errors] == {"lost": ["E_PEER_LOST"], "cancelled": ["E_CANCELLED"], "neither": []}[gone]


def test_a_bell_is_set_at_once_if_the_stream_had_broken_off_before_it_is_watched() -> None:
    lost, other, bell = StreamPipe("lab"), StreamPipe("shop"), threading.Event()
    lost.end(PeerLost("gone"))
    other.watch(bell)
    assert not bell.is_set()
    lost.watch(bell)
    assert bell.is_set()
    run(other.pause(bell))
    with pytest.raises(PeerLost, match="gone"):
        run(lost.pause(bell))


@pytest.mark.parametrize("resumable", [True, False])
def test_a_last_word_waits_for_no_room_and_one_for_good_not_for_what_was_to_be_sent(resumable: bool) -> None:
    """A peer that does not read would hold it up for ever, and one that computes would take it after all the rest."""
    pipe = StreamPipe("lab")
    pipe._outgoing = PieceQueue(300)
    run(pipe.put(Frame(sequence=1, body=bytes(200))))
    word = Abort(reason="x" * 200, resumable=resumable).SerializeToString()
    run(pipe.put(Frame(sequence=2, type=Abort.DESCRIPTOR.full_name, body=word)))
    assert [Frame.FromString(data).sequence for (data,) in pipe._outgoing] == ([1, 2] if resumable else [2])


def test_cancel_wakes_a_blocked_put_and_leaves_room_for_a_last_word() -> None:
    stream = small()
    fill(stream)
    thread, errors = blocked(lambda: stream._put(Chunk(rows=bytes(100))))
    stream.cancel(Cancelled("stop"))
    thread.join(240)
    assert isinstance(errors[0], Cancelled)
    stream._put(Chunk(offset=9), last=True)
    assert Chunk.FromString(next(stream.outgoing())).offset == 9
    with pytest.raises(Cancelled):  # never waits again
        stream._put(Chunk(rows=bytes(100)))


def test_after_a_cancellation_nothing_but_the_reason_follows_what_was_dropped() -> None:
    """The peer would take the next frame for one that comes out of order, and blame this party."""
    pipe = StreamPipe("lab")
    run(pipe.put(Frame(sequence=1)))
    pipe.cancel(Cancelled("stop"))
    with pytest.raises(Cancelled, match="stop"):
        run(pipe.put(Frame(sequence=2)))
    run(pipe.put(Frame(sequence=3, type=Abort.DESCRIPTOR.full_name)))
    assert [Frame.FromString(data).sequence for (data,) in pipe._outgoing] == [3]


def test_close_lets_queued_messages_leave_and_comes_back_without_a_transport() -> None:
    stream = small()
    freed = []
    stream.attach(lambda: freed.append(True))
    stream._put(Chunk(offset=1))
    stream.close()
    stream.close()
    assert freed == [True]
    assert [Chunk.FromString(data).offset for data in stream.outgoing()] == [1]
    with pytest.raises(PeerLost):
        stream._put(Chunk())
    with pytest.raises(PeerLost):
        stream._get()


def test_what_waits_to_be_sent_is_freed_when_the_transport_lets_go() -> None:
    stream = small()
    fill(stream)
    stream.finish()
    assert not stream._outgoing
    assert list(stream.outgoing()) == []


def test_a_closed_stream_holds_no_connection() -> None:
    class Connection:
        def hang_up(self) -> None:
            stream.finish()

    stream, connection = small(), Connection()
    held = weakref.ref(connection)
    stream.attach(connection.hang_up)
    stream.close()
    del connection
    assert held() is None


def test_a_link_gives_none_when_nothing_comes() -> None:
    assert LinkStream("lab").receive(0.01) is None


def test_bytes_that_are_no_frame_are_refused() -> None:
    pipe = StreamPipe("lab")
    pipe.arrive([b"\xff"])
    with pytest.raises(ProtocolError, match="lab"):
        run(pipe.get())


def test_what_is_put_is_a_copy() -> None:
    pipe = StreamPipe("lab")
    frame = Frame(sequence=1)
    run(pipe.put(frame))
    frame.sequence = 2
    assert Frame.FromString(next(pipe.outgoing())).sequence == 1


@pytest.mark.parametrize("cut", [64, PIECE_BYTES - 1])
def test_a_message_in_pieces_smaller_than_they_may_be_is_refused_at_the_first(cut: int) -> None:
    """A Python object for every few bytes would take forty times the memory that the message may have."""
    data = Frame(job_id="j", body=bytes(PIECE_BYTES + 100)).SerializeToString()
    pipe = StreamPipe("lab")
    pipe.arrive([data[:cut], *(data[at : at + 2] for at in range(cut, cut + 200, 2))])
    with pytest.raises(ProtocolError, match="do not fit together"):
        run(pipe.get())
    assert len(pipe._inbox) == 100  # the next one was not asked for
    whole = StreamPipe("lab")
    whole.arrive([data[:PIECE_BYTES], data[PIECE_BYTES:]])
    assert len(run(whole.get()).body) == PIECE_BYTES + 100


def test_a_peer_that_reads_no_notice_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vfl_node.transport.link_stream.LINK_SEND_S", 0.05)
    link = LinkStream("lab")
    beat = Notice(beat=Beat(progressed=True))
    while link._outgoing.has_room((beat.SerializeToString(),)):
        link.send(beat)
    with pytest.raises(PeerLost, match="lab: it does not read"):
        link.send(beat)
    assert link.ended is not None  # whoever serves the link hears of it


def test_who_ends_a_link_knows_why_even_if_the_peer_ends_it_as_soon_as_it_reads_the_reason() -> None:
    link = LinkStream("lab")

    def transport() -> None:
        next(link.outgoing())
        link.end(PeerLost("lab ended the conversation, or was lost"))

    reader = threading.Thread(target=transport)
    reader.start()
    link.part("the certificate of lab expired", PeerLost("lab's certificate expired", code="E_CERTIFICATE"))
    reader.join()
    assert link.ended is not None
    assert link.ended.code == "E_CERTIFICATE"
