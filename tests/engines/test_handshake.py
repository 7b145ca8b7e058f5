"""What one connection tells of a cluster's head: servers of gRPC in place of it, with and without certificates."""

from __future__ import annotations

import shutil
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import grpc
import pytest

from tests.engines.ray_cluster import free_port, make_certificates
from vfl_node.engines.ray.handshake import find_fault
from vfl_node.settings.engine import EngineSettings


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Two folders with certificates, each of an authority of its own."""
    folders = [tmp_path_factory.mktemp(name) for name in ("own", "other")]
    for folder in folders:
        make_certificates(folder)
    return folders


@contextmanager
def head(folder=None, host="127.0.0.1"):
    """A server; with a folder it shows certificates, and asks for those of that authority. Yields its address."""
    server = grpc.server(ThreadPoolExecutor(1))
    if folder:
        pair = [((folder / "key.pem").read_bytes(), (folder / "cert.pem").read_bytes())]
        credentials = grpc.ssl_server_credentials(pair, (folder / "ca.pem").read_bytes(), require_client_auth=True)
        port = server.add_secure_port(f"{host}:0", credentials)
    else:
        port = server.add_insecure_port(f"{host}:0")
    server.start()
    try:
        yield f"{host}:{port}"
    finally:
        server.stop(None).wait()


def fault(address, folder=None, **files):
    given = {"kind": "ray", "address": address, "token_file": "/token", "workers": 1, "allow_plain": True}
    if folder:
        given |= {key: folder / f"{key}.pem" for key in ("ca", "cert", "key")}
    return find_fault(EngineSettings(**given | files), 20)


def test_nothing_is_wrong_where_both_show_certificates_of_one_authority_or_none(files):
    with head(files[0]) as address:
        assert fault(address, files[0]) == ""
    with head() as address:
        assert fault(address) == ""


def test_each_side_that_goes_without_certificates_is_told(files):
    with head(files[0]) as address:
        assert fault(address).startswith("it answers, but not without certificates")
    with head() as address:
        assert fault(address, files[0]).startswith("it does not ask for certificates")


def test_certificates_of_two_authorities_do_not_fit_whichever_side_finds_out(files):
    own, other = files
    with head(own) as address:
        assert fault(address, other).startswith("its certificates and this machine's do not fit: ")
        strange = fault(address, other, ca=own / "ca.pem")
        assert strange.startswith("its certificates and this machine's do not fit: it ")
        assert "engine.cert" in strange


def test_a_certificate_that_does_not_name_the_address_is_told(files):
    with head(files[0], "127.0.0.3") as address:
        assert "not valid for '127.0.0.3'" in fault(address, files[0])


def test_files_that_do_not_belong_together_are_told_before_any_connection(files, tmp_path):
    own, other = files
    assert fault("127.0.0.1:1", own, key=other / "key.pem").startswith("engine.ca, cert and key cannot be used together")
    shutil.copy(own / "key.pem", tmp_path / "ca.pem")
    assert fault("127.0.0.1:1", own, ca=tmp_path / "ca.pem").startswith("engine.ca, cert and key cannot be used together")
    assert fault("127.0.0.1:1", own, ca=tmp_path / "none.pem").startswith("engine.ca, cert and key cannot be used together")


@pytest.mark.parametrize("secure", [True, False])
def test_nobody_or_one_who_says_nothing_is_left_to_patience(files, secure):
    folder = files[0] if secure else None
    assert fault(f"127.0.0.1:{free_port()}", folder) == ""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        given = {"kind": "ray", "address": f"127.0.0.1:{silent.getsockname()[1]}", "token_file": "/token", "workers": 1}
        pems = {key: folder / f"{key}.pem" for key in ("ca", "cert", "key")} if folder else {"allow_plain": True}
        assert find_fault(EngineSettings(**given | pems), 0.1) == ""


def test_an_address_that_cannot_be_is_left_to_ray(files):
    assert fault("127.0.0.1:99999") == fault("no.such.name.invalid:1", files[0]) == ""
