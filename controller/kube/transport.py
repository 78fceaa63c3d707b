"""Requests to the API server: credentials, retries, and translation of the HTTP client's errors.

Credentials are read again before they expire, and after the server has refused them (401).
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import ssl
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self, TypeAlias
from urllib.parse import urlencode

import aiohttp

from controller.kube.decoding import Object, decode_object
from controller.kube.errors import KubeError, Throttled, Unavailable, error_from
from controller.kube.kinds import POD_METRICS
from controller.kube.kubeconfig import DEFAULT, MALFORMED, cause_of
from controller.kube.library import (
    Configuration,
    forget_lost_files,
    load_incluster_config,
    load_kube_config,
    make_session,
    make_tls,
    proxy_for,
    remove_files_except,
)
from shared.text import http_date, retry_after

CALL_SECONDS: Final = 30.0
PAUSES_SECONDS: Final = (0.2, 0.8)
"""Pauses before a failed call is sent again. A step of a job makes many calls, and would otherwise
start over."""
LONGEST_PAUSE_SECONDS: Final = 2.0
"""A longer ``Retry-After`` is left to the caller."""
RETRIED: Final = frozenset({"GET", "POST", "PATCH", "DELETE"})
"""Methods that are safe to repeat here: callers recognise a write that was done already by the
object's name, its UID, or the object's unchanged content. Lists and watches are streams, and back
off by themselves; a PUT has to read the object first."""
OLD_CONNECTIONS: Final = 8
"""How many connections that present an expired certificate are tried at most."""
CREDENTIALS_SECONDS: Final = 60.0
"""How long credentials are used before they are read again: bound ServiceAccount tokens and exec
credentials expire, and nothing says when."""
LEAST_OFFSET_SECONDS: Final = 5.0
"""Clocks that differ by less count as equal."""
CREDENTIALS_WAIT_SECONDS: Final = 10.0
"""How long the exec credential plugin may take."""

_LONGEST_TEXT: Final = 500
"""Bytes of a refusal in plain text that are kept."""
ABOUT_OBJECTS: Final = frozenset({400, 403, 404, 409, 422})
"""Statuses that decide about objects. They are believed only from an API server, and never from an
error page of a proxy in front of it."""
NOT_SERVED: Final = b"404 page not found"
"""An API server's response for a group that it does not serve."""

JSON: Final = "application/json"

_OF_METRICS_SERVER: Final = f"/apis/{POD_METRICS.api}/"
"""The API server passes these requests on, and the responses have the clock of another machine."""

Certificates: TypeAlias = tuple[bytes, ...]
"""The contents of the files of authorities, client certificate and client key."""

WebSocket: TypeAlias = aiohttp.ClientWebSocketResponse[bool]

log = logging.getLogger(__name__)


class Credentials:
    """The client's configuration: in-cluster in a pod, else from a kubeconfig.

    ``generation`` counts how often credentials were read again. Authorities and client
    certificates are read with the tokens: clusters rotate them, and exec credential plugins issue
    certificates for as little as an hour. Connections that ``tls`` opens later use those that were
    read last. An authority that is removed stays trusted until the process ends.

    Args:
        kubeconfig: A kubeconfig's path; None: the in-cluster configuration if this is a pod, else
            ``~/.kube/config``.
    """

    def __init__(self, kubeconfig: Path | None) -> None:
        self._kubeconfig = kubeconfig
        self._lock = asyncio.Lock()
        self._read_at = 0.0
        self._certificates: Certificates = ()
        self.tls: ssl.SSLContext
        self.generation = 0
        self.configuration = Configuration()

    async def load(self) -> None:
        """Read the configuration for the first time.

        Raises:
            Unavailable: If there is no configuration, or it is malformed.
        """
        await self._load_into(self.configuration)
        self._take_certificates(self.configuration)
        self._read_at = time.monotonic()

    async def headers(self) -> dict[str, str]:
        """Return the current credentials as headers; empty with a client certificate."""
        await self.refresh()
        token = self.configuration.api_key.get("BearerToken")
        return {"Authorization": token} if token else {}

    @property
    def has_certificate(self) -> bool:
        """Whether there is a client certificate; a connection keeps the one that it opened with."""
        return bool(self.configuration.cert_file)

    async def renew(self, generation: int) -> None:
        """Read the credentials again because the server refused those of *generation*.

        Of several concurrent callers only the first reads them, since that may start a program.

        Raises:
            Unavailable: If they cannot be read.
        """
        async with self._lock:
            if self.generation == generation:
                await self._renew()

    async def _renew(self) -> None:
        fresh = Configuration()
        await self._load_into(fresh)
        if self.configuration.api_key and not (fresh.api_key or fresh.cert_file):
            raise Unavailable("the configuration has no credentials any more")
        self.configuration.api_key = fresh.api_key
        self.generation += 1
        self._read_at = time.monotonic()
        self._take_certificates(fresh)

    def _take_certificates(self, fresh: Configuration) -> None:
        try:
            found = _read_certificates(fresh)
            if found == self._certificates:
                return
            # First into an unused context: a key may be written later than its certificate.
            # (An SSLError is an OSError.)
            _load_certificates(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), fresh)
            if not self._certificates:
                self.tls = make_tls(fresh)
            _load_certificates(self.tls, fresh)
        except OSError as error:
            raise Unavailable(f"certificates cannot be used: {error}") from error
        if self._certificates:
            log.info("reloaded the certificates for the API server")
        self._certificates = found
        names = fresh.ssl_ca_cert, fresh.cert_file, fresh.key_file
        current = self.configuration
        current.ssl_ca_cert, current.cert_file, current.key_file = names
        remove_files_except(names)

    async def refresh(self) -> None:
        """Read the credentials again if the last time was long ago; on failure, keep them."""
        if self._is_fresh():
            return
        async with self._lock:
            if self._is_fresh():
                return  # another call waited for the lock before this one
            try:
                await self._renew()
            except Unavailable as error:
                # They may still be valid; otherwise the server refuses them.
                log.warning("cannot reload the credentials for the API server: %s", error)
                self._read_at = time.monotonic()

    def _is_fresh(self) -> bool:
        return time.monotonic() - self._read_at < CREDENTIALS_SECONDS

    async def _load_into(self, configuration: Configuration) -> None:
        try:
            if self._kubeconfig is None and "KUBERNETES_SERVICE_HOST" in os.environ:
                load_incluster_config(configuration, try_refresh_token=False)  # type: ignore[no-untyped-call]  # the library's
            else:
                file = str(self._kubeconfig) if self._kubeconfig else None
                forget_lost_files()
                # It may start an exec credential plugin, which may hang. (TimeoutError: OSError.)
                async with asyncio.timeout(CREDENTIALS_WAIT_SECONDS):
                    await load_kube_config(file, client_configuration=configuration)
        except MALFORMED as error:
            raise Unavailable(f"no usable Kubernetes configuration: {self._why(error)}") from error
        # A token file may end with a line break, which client-go trims too.
        keys = configuration.api_key.items()
        configuration.api_key = {name: key.strip() for name, key in keys}

    def _why(self, error: Exception) -> str:
        """Return the cause with the file's name, which the library's messages often lack."""
        if self._kubeconfig is None and "KUBERNETES_SERVICE_HOST" in os.environ:
            return str(error)
        if self._kubeconfig is None and not DEFAULT.expanduser().exists():
            return f"KUBECONFIG is not set, this is not a pod, and {DEFAULT} does not exist"
        return cause_of(error, str(self._kubeconfig or DEFAULT))


def _read_certificates(configuration: Configuration) -> Certificates:
    files = configuration.ssl_ca_cert, configuration.cert_file, configuration.key_file
    return tuple(Path(file).read_bytes() if file else b"" for file in files)


def _load_certificates(context: ssl.SSLContext, configuration: Configuration) -> None:
    if configuration.ssl_ca_cert:
        context.load_verify_locations(cafile=configuration.ssl_ca_cert)
    if configuration.cert_file:
        # Without a password, OpenSSL asks for that of an encrypted key on the terminal.
        context.load_cert_chain(configuration.cert_file, configuration.key_file, password="")


@dataclass(frozen=True, slots=True)
class Request:
    """A request to the API server."""

    method: str
    path: str
    query: Mapping[str, str]
    body: object = None
    content_type: str = JSON
    accept: str = JSON


class Transport:
    """Sends requests with the client's credentials; every method raises KubeError on failure."""

    def __init__(
        self, credentials: Credentials, calls: aiohttp.ClientSession, streams: aiohttp.ClientSession
    ) -> None:
        configuration = credentials.configuration
        self.credentials = credentials
        self._calls = calls
        self._streams = streams
        self._server = configuration.host or ""
        self._options: dict[str, Any] = {
            # The ``proxy-url`` of a kubeconfig takes precedence.
            "proxy": configuration.proxy or proxy_for(self._server),
            "proxy_headers": configuration.proxy_headers,
            "server_hostname": configuration.tls_server_name,
        }
        self.clock_offset = 0.0
        """How far the API server's clock is ahead of this machine's, in seconds."""

    @classmethod
    @asynccontextmanager
    async def connect(cls, kubeconfig: Path | None) -> AsyncIterator[Self]:
        """Open a transport; nothing is sent yet.

        Raises:
            Unavailable: If there is no usable configuration.
        """
        credentials = Credentials(kubeconfig)
        await credentials.load()
        limit = credentials.configuration.connection_pool_maxsize
        # Streams have an unbounded pool of their own: hundreds of followed logs and shells would
        # leave none of the shared pool's hundred connections for calls.
        async with (
            make_session(credentials.tls, limit=limit) as calls,
            make_session(credentials.tls, limit=0) as streams,
        ):
            yield cls(credentials, calls, streams)

    async def call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: object = None,
        content_type: str = JSON,
    ) -> Object:
        """Return the object in the response; a call that failed is sent again after a pause."""
        request = Request(method, path, query or {}, body, content_type)
        for pause in PAUSES_SECONDS:
            try:
                return await self.once(request)
            except (Throttled, Unavailable) as error:
                requested = error.retry_after_seconds or 0.0
                # A server that throttles a call has done nothing of it, so even a PUT is repeated.
                is_safe = method in RETRIED or isinstance(error, Throttled)
                if not is_safe or not error.status or requested > LONGEST_PAUSE_SECONDS:
                    raise
                await asyncio.sleep(max(requested, pause))
        return await self.once(request)

    async def once(self, request: Request) -> Object:
        """Return the object in the response, without a retry."""
        timeout = aiohttp.ClientTimeout(total=CALL_SECONDS)
        response = await self._respond(self._calls, request, timeout)
        async with response:
            if not 200 <= response.status < 300:
                raise await _refusal(response)
            with _translated():
                text = await response.read()
        return decode_object(text)

    @asynccontextmanager
    async def stream(
        self,
        path: str,
        query: Mapping[str, str],
        *,
        quiet_seconds: float,
        whole_seconds: float | None = None,
        accept: str = JSON,
    ) -> AsyncIterator[aiohttp.StreamReader]:
        """Open the body of a streamed response; it fails after *quiet_seconds* without data."""
        timeout = aiohttp.ClientTimeout(
            total=whole_seconds, sock_connect=CALL_SECONDS, sock_read=quiet_seconds
        )
        request = Request("GET", path, query, accept=accept)
        response = await self._respond(self._streams, request, timeout)
        try:
            if response.status != 200:
                raise await _refusal(response)
            with _translated():
                yield response.content
        finally:
            response.close()

    async def _respond(
        self, session: aiohttp.ClientSession, request: Request, timeout: aiohttp.ClientTimeout
    ) -> aiohttp.ClientResponse:
        """Return the response; after a 401, repeat the request with new credentials."""
        generation = self.credentials.generation
        response = await self._send(session, request, timeout)
        renewals = 0
        while response.status == 401 and renewals < self._most_renewals:
            response.close()
            await self.credentials.renew(generation)
            response = await self._send(session, request, timeout, last=True)
            renewals += 1
        return response

    async def websocket(
        self, path: str, query: Sequence[tuple[str, str]], protocols: Sequence[str]
    ) -> WebSocket:
        """Open a WebSocket, whose Pings and Closes are left to the caller.

        Raises:
            aiohttp.ClientError, OSError: If it cannot be opened; a WSServerHandshakeError has the
                server's status.
            Unavailable: If credentials that the server has refused cannot be read again.
        """
        generation, renewals = self.credentials.generation, 0
        while True:
            try:
                socket: WebSocket = await self._streams.ws_connect(
                    self._url(path, query),
                    protocols=protocols,
                    headers=await self.credentials.headers(),
                    autoclose=False,
                    autoping=False,
                    **self._options,
                )
                return socket
            except aiohttp.WSServerHandshakeError as error:
                if error.status != 401 or renewals == self._most_renewals:
                    raise
            await self.credentials.renew(generation)
            renewals += 1

    def _url(self, path: str, query: Mapping[str, str] | Sequence[tuple[str, str]]) -> str:
        return f"{self._server}{path}" + (f"?{urlencode(query)}" if query else "")

    @property
    def _most_renewals(self) -> int:
        return OLD_CONNECTIONS if self.credentials.has_certificate else 1

    async def _send(
        self,
        session: aiohttp.ClientSession,
        request: Request,
        timeout: aiohttp.ClientTimeout,
        *,
        last: bool = False,
    ) -> aiohttp.ClientResponse:
        """Return the response; with *last*, the connection is not reused."""
        own = {"Accept": request.accept, "Content-Type": request.content_type}
        headers = own | await self.credentials.headers() | ({"Connection": "close"} if last else {})
        with _translated():
            began = time.time()
            response = await session.request(
                request.method,
                self._url(request.path, request.query),
                data=None if request.body is None else json.dumps(request.body),
                headers=headers,
                timeout=timeout,
                **self._options,
            )
        if not request.path.startswith(_OF_METRICS_SERVER):
            self._compare_clocks(response.headers.get("Date", ""), began=began)
        return response

    def _compare_clocks(self, date: str, *, began: float) -> None:
        if (at := http_date(date)) is not None:
            # Dates are whole seconds, cut off. The server read its clock at some moment since.
            offset = min(0.0, at + 0.5 - began) + max(0.0, at + 0.5 - time.time())
            self.clock_offset = offset if abs(offset) >= LEAST_OFFSET_SECONDS else 0.0


async def _refusal(response: aiohttp.ClientResponse) -> KubeError:
    pause = retry_after(response.headers.get("Retry-After", ""), now=time.time())
    with _translated():
        text = await response.read()
    body = _status_in(text)
    if body is None and response.status in ABOUT_OBJECTS:
        said = f"a proxy before the API server responded with {response.status}"
        return Unavailable(said, status=response.status)
    if body is None and response.content_type == "text/plain":
        # As an API server that is overloaded, or shuts down, and proxies without a server.
        body = {"message": text[:_LONGEST_TEXT].decode(errors="replace").strip()}
    return error_from(response.status, body or {}, pause)


def _status_in(text: bytes) -> Object | None:
    """Return the Status in *text*, with which every API server refuses; None if it is none.

    API gateways refuse in JSON of their own (``{"message": "no Route matched"}``).
    """
    if text.strip() == NOT_SERVED:
        return {"message": NOT_SERVED.decode()}
    try:
        body = decode_object(text)
    except Unavailable:
        return None
    return body if body.get("kind") == "Status" else None


@contextmanager
def _translated() -> Iterator[None]:
    """Translate errors of the HTTP client to Unavailable."""
    try:
        yield
    except (aiohttp.ClientError, OSError, ValueError) as error:
        # ValueError: the body is not JSON, or cut off. A TimeoutError is an OSError.
        # Only errors of a connection attempt name the connection and the cause.
        why = (
            str(error) if isinstance(error, aiohttp.ClientConnectorError) else type(error).__name__
        )
        raise Unavailable(f"the API server did not respond: {why}") from error
