"""How the command line talks with a node that takes its time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from vfl_node.errors import UsageError
from vfl_node.node import client
from vfl_node.node.client import Client

SHORT_S = 0.2


class SlowNode(BaseHTTPRequestHandler):
    """Answers everything, a few times later than a node may answer what takes no time."""

    asked = 0
    late = threading.Event()

    def do_POST(self) -> None:
        type(self).asked += 1
        self.rfile.read(int(self.headers["Content-Length"]))
        self.late.wait(5 * SHORT_S)
        self.send_response(202)
        self.end_headers()
        self.wfile.write(b'{"id": "new-1"}')

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(client, "ANSWER_S", SHORT_S)
    monkeypatch.setattr(SlowNode, "asked", 0)
    with ThreadingHTTPServer(("127.0.0.1", 0), SlowNode) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_node_that_reads_many_new_records_is_waited_for(address: str) -> None:
    """To give up would leave a job behind, and asking again would make another."""
    assert Client(address).predict_new("trial-1", b"id\na\n") == {"id": "new-1"}
    assert SlowNode.asked == 1


def test_what_takes_no_time_is_not_waited_for(address: str) -> None:
    with pytest.raises(UsageError) as caught:
        Client(address).submit("name: trial")
    assert caught.value.code == "E_NOT_RUNNING"


@pytest.mark.parametrize("job_id", ["", "../health", "trial-1?x=1", "épreuve", "a b", "Trial"])
def test_what_no_job_is_called_is_no_other_path(job_id: str) -> None:
    with pytest.raises(UsageError, match=r"no job .* here") as caught:
        Client("127.0.0.1:1").job(job_id)
    assert (caught.value.code, bool(caught.value.hint)) == ("E_UNKNOWN_JOB", True)
