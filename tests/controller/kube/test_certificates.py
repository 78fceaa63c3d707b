"""Tests the rotation of the API server's and the client's certificates at run time."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from controller.kube import transport
from controller.kube.client import Kube
from controller.kube.errors import Unauthorized, Unavailable
from controller.kube.exec import ExecFailed, ExecTarget, PodExec
from controller.kube.kinds import PODS
from tests.controller.kube.api_server import thing
from tests.gateway.relay.authorities import Authority

HERE = "127.0.0.1"


class Server:
    """A TLS API server that accepts client certificates of the *good* subjects."""

    def __init__(self, clients: Authority) -> None:
        self.clients = clients
        self._runner: web.AppRunner | None = None
        self.port = 0
        self.good = "first"

    async def start(self, certificate: Path) -> None:
        """Listen on the same port, with this certificate."""
        await self.stop()
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, shutdown_timeout=0)
        await self._runner.setup()
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificate)
        context.load_verify_locations(self.clients.path)
        context.verify_mode = ssl.CERT_OPTIONAL
        # As Go's servers do; Python's are strict since 3.13.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        site = web.TCPSite(self._runner, HERE, self.port, ssl_context=context)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Stop listening."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(0.02)  # so that concurrent calls take separate connections
        assert request.transport is not None
        shown = request.transport.get_extra_info("peercert") or {}
        names = [value for pairs in shown.get("subject", ()) for _, value in pairs]
        if self.good not in names:
            return web.json_response({"kind": "Status", "reason": "Unauthorized"}, status=401)
        return web.json_response(thing("a", "1"))


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    server = Server(Authority(tmp_path, "clients"))
    yield server
    await server.stop()


@pytest.fixture(autouse=True)
def read_with_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "CREDENTIALS_SECONDS", 0.0)


class Site:
    """The files of a kubeconfig, and the authorities that sign their certificates."""

    def __init__(self, folder: Path, server: Server) -> None:
        self.folder = folder
        self._server = server
        self.kubeconfig = folder / "kubeconfig"
        self.authority = folder / "ca.crt"

    async def serve_with_new_authority(self, name: str) -> None:
        """Sign the server's certificate with a new authority, and write its authority file."""
        made = Authority(self.folder, name)
        await self._server.start(made.vouch(HERE))
        self.authority.write_bytes(made.path.read_bytes())

    def show(self, subject: str) -> None:
        """Write a certificate of *subject* to the client's files."""
        made = self._server.clients.vouch(subject).read_bytes()
        (self.folder / "client.crt").write_bytes(made)
        (self.folder / "client.key").write_bytes(made)

    def _encoded(self, name: str) -> str:
        return base64.b64encode((self.folder / name).read_bytes()).decode()

    def write(self, more: Mapping[str, object] | None = None, *, inline: bool = False) -> None:
        """Write the kubeconfig, *inline* with the certificates in it; *more* is the cluster's."""
        server = f"https://{HERE}:{self._server.port}"
        cluster: dict[str, object] = {"server": server, "certificate-authority": "ca.crt"}
        user = {"client-certificate": "client.crt", "client-key": "client.key"}
        if inline:
            authority, certificate, key = map(self._encoded, ("ca.crt", "client.crt", "client.key"))
            cluster = {"server": server, "certificate-authority-data": authority}
            user = {"client-certificate-data": certificate, "client-key-data": key}
        content = {
            "current-context": "c",
            "clusters": [{"name": "c", "cluster": cluster | dict(more or {})}],
            "users": [{"name": "u", "user": user}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        }
        self.kubeconfig.write_text(json.dumps(content))


@asynccontextmanager
async def connected(tmp_path: Path, server: Server) -> AsyncIterator[tuple[Kube, Site]]:
    site = Site(tmp_path, server)
    await site.serve_with_new_authority("one")
    site.show("first")
    site.write()
    async with Kube.connect(site.kubeconfig) as kube:
        await kube.get(PODS, "a", "ns")
        yield kube, site


async def test_a_rotated_authority_is_trusted_without_restart(
    tmp_path: Path, server: Server
) -> None:
    async with connected(tmp_path, server) as (kube, site):
        await site.serve_with_new_authority("two")
        assert (await kube.get(PODS, "a", "ns"))["metadata"]["name"] == "a"
        await kube.list(PODS)  # on another connection


@pytest.mark.usefixtures("strict_by_default")
async def test_an_authority_without_key_identifiers_is_trusted(
    tmp_path: Path, server: Server
) -> None:
    async with connected(tmp_path, server) as (kube, _site):
        await kube.list(PODS)  # on another connection
        executor = PodExec(kube)
        with pytest.raises(ExecFailed, match="refused with 200"):
            await executor.open(ExecTarget("ns", "a", "job"), ["sh"])


@pytest.mark.parametrize(
    "given", [{"tls-server-name": "api.example.com"}, {"insecure-skip-tls-verify": True}]
)
async def test_a_kubeconfig_says_which_name_of_the_server_is_verified(
    tmp_path: Path, server: Server, given: Mapping[str, object]
) -> None:
    async with connected(tmp_path, server) as (kube, site):
        await server.start(Authority(tmp_path, "one").vouch("api.example.com"))
        site.authority.write_bytes((tmp_path / "one.pem").read_bytes())
        with pytest.raises(Unavailable):
            await kube.get(PODS, "a", "ns")
        site.write(given)
        async with Kube.connect(site.kubeconfig) as other:
            await other.get(PODS, "a", "ns")
            with pytest.raises(ExecFailed, match="refused with 200"):
                await PodExec(other).open(ExecTarget("ns", "a", "job"), ["sh"])


@pytest.mark.usefixtures("strict_by_default")
async def test_a_server_with_untrusted_certificate_is_refused(
    tmp_path: Path, server: Server
) -> None:
    async with connected(tmp_path, server) as (kube, _site):
        await server.start(Authority(tmp_path, "foreign").vouch(HERE))
        with pytest.raises(Unavailable):
            await kube.get(PODS, "a", "ns")


async def test_a_rotated_client_certificate_is_used_by_all_connections(
    tmp_path: Path, server: Server
) -> None:
    async with connected(tmp_path, server) as (kube, site):
        await asyncio.gather(*(kube.get(PODS, "a", "ns") for _ in range(5)))
        server.good = "second"
        site.show("second")
        for _ in range(6):
            await kube.get(PODS, "a", "ns")


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Provide the folder of the library's temporary files."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
async def inline(tmp_path: Path, server: Server) -> Site:
    """Provide a site whose kubeconfig contains its certificates."""
    site = Site(tmp_path, server)
    await site.serve_with_new_authority("one")
    site.show("first")
    site.write(inline=True)
    return site


@pytest.mark.parametrize("how", ["removed", "emptied"])
async def test_files_of_certificates_within_a_kubeconfig_are_made_again(
    server: Server, inline: Site, made: Path, how: str
) -> None:
    async with Kube.connect(inline.kubeconfig) as kube:
        await kube.get(PODS, "a", "ns")
        # A cleaner of temporary files removes those of the library; a full disk leaves empty ones.
        for file in made.iterdir():
            file.unlink() if how == "removed" else file.write_bytes(b"")
        server.good = "second"
        inline.show("second")
        inline.write(inline=True)
        for _ in range(3):
            await kube.get(PODS, "a", "ns")


async def test_files_of_certificates_that_are_not_used_any_more_are_removed(
    server: Server, inline: Site, made: Path
) -> None:
    async with Kube.connect(inline.kubeconfig) as kube:
        await kube.get(PODS, "a", "ns")
        before = set(made.iterdir())
        server.good = "second"
        inline.show("second")
        inline.write(inline=True)
        await kube.get(PODS, "a", "ns")
        after = set(made.iterdir())
        # One is the authority's; certificate and key are in the other one.
        assert (len(before), len(after), len(after & before)) == (2, 2, 1)
        # Connections that are opened later begin with these.
        executor = PodExec(kube)
        with pytest.raises(ExecFailed, match="refused with 200"):
            await executor.open(ExecTarget("ns", "a", "job"), ["sh"])


async def test_a_certificate_without_its_key_is_not_loaded_yet(
    tmp_path: Path, server: Server
) -> None:
    async with connected(tmp_path, server) as (kube, site):
        old = (site.folder / "client.key").read_bytes()
        site.show("second")
        whole = (site.folder / "client.key").read_bytes()
        (site.folder / "client.key").write_bytes(old)
        await server.stop()  # the next connection is a new one
        await server.start(Authority(tmp_path, "three").vouch(HERE))
        site.authority.write_bytes((tmp_path / "three.pem").read_bytes())
        with pytest.raises(Unavailable):
            await kube.get(PODS, "a", "ns")
        (site.folder / "client.key").write_bytes(whole)
        server.good = "second"
        await kube.get(PODS, "a", "ns")


async def test_exec_connections_trust_the_new_authority(tmp_path: Path, server: Server) -> None:
    async with connected(tmp_path, server) as (kube, site):
        executor = PodExec(kube)
        await site.serve_with_new_authority("two")
        await kube.get(PODS, "a", "ns")
        # A response without WebSocket shows that TLS accepted the connection.
        with pytest.raises(ExecFailed, match="refused with 200"):
            await executor.open(ExecTarget("ns", "a", "job"), ["sh"])


async def test_a_permanently_invalid_certificate_is_refused(tmp_path: Path, server: Server) -> None:
    async with connected(tmp_path, server) as (kube, _site):
        server.good = "nobody"
        with pytest.raises(Unauthorized):
            await kube.get(PODS, "a", "ns")
