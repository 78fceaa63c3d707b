"""pods/log and pods/exec: finds the Pod; the kubelet of its node answers."""

import asyncio
import contextlib
import json
import ssl
from typing import Final

import aiohttp
from aiohttp import web

from deploy.local.cluster.apiserver.errors import ApiError, bad_request
from deploy.local.cluster.apiserver.kinds import Kind, Object
from deploy.local.cluster.apiserver.store import Store, Stored

_NODES: Final = ("", "nodes")
PROTOCOLS: Final = ("v5.channel.k8s.io", "v4.channel.k8s.io")
_STATUS: Final = b"\x03"
"""The channel of the Status."""

_FRAME_BYTES: Final = 16 * 1024 * 1024


class Kubelets:
    """Calls kubelets with the certificate that they require of an API server."""

    def __init__(self, store: Store, pods: Kind, trust: ssl.SSLContext) -> None:
        self._store = store
        self._pods = pods
        self._trust = trust
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close every connection."""
        if self._session is not None:
            await self._session.close()

    async def resource_metrics(self, node: Object) -> str:
        """Return the metrics of containers from the kubelet of *node*, in Prometheus' text format.

        Raises:
            aiohttp.ClientError, TimeoutError: If the kubelet does not answer.
        """
        url, limit = f"{_address(node)}/metrics/resource", aiohttp.ClientTimeout(total=10)
        async with self._client().get(url, timeout=limit, raise_for_status=True) as answer:
            return await answer.text()

    async def log(self, request: web.Request, pod: Stored) -> web.StreamResponse:
        """Answer with the container's log from the kubelet, for as long as the kubelet sends it."""
        container = self._container(pod, request.query.get("container", ""))
        if not pod.value["spec"].get("nodeName"):
            return web.Response(status=204)  # seen on a real server
        url = self._url(pod, "containerLogs", container)
        limit = aiohttp.ClientTimeout(total=None, sock_connect=5)
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        try:
            async with self._client().get(url, params=request.query, timeout=limit) as answer:
                if answer.status != 200:
                    raise bad_request((await answer.text()).strip())
                await response.prepare(request)
                async for chunk in answer.content.iter_any():
                    await response.write(chunk)
                return response
        except aiohttp.ClientConnectorError as error:
            raise _unreachable(error) from error
        except ConnectionError:
            return response  # the client has disconnected

    async def exec(self, request: web.Request, pod: Stored) -> web.StreamResponse:
        """Join the client's WebSocket to the kubelet's.

        With v5, a real server upgrades the client first: what the kubelet refuses is in the Status.
        With v4, all refusals come before the upgrade.
        """
        if not pod.value["spec"].get("nodeName"):
            name = pod.value["metadata"]["name"]
            raise bad_request(f"pod {name} does not have a host assigned")
        container = self._container(pod, request.query.get("container", ""))
        if request.headers.get("Upgrade", "").lower() != "websocket":
            raise bad_request("Upgrade request required")
        asked = [p.strip() for p in request.headers.get("Sec-WebSocket-Protocol", "").split(",")]
        common = [p for p in asked if p in PROTOCOLS]
        if not common:
            raise bad_request("unable to upgrade: no supported WebSocket subprotocol was asked for")
        if not request.query.getall("command", []):
            raise bad_request("you must specify at least 1 command for the container")
        try:
            upstream = await self._client().ws_connect(
                self._url(pod, "exec", container),
                params=request.query,
                protocols=common[:1],
                max_msg_size=_FRAME_BYTES,
                autoclose=False,
            )
        except aiohttp.WSServerHandshakeError as error:
            said = f'container not found ("{container}")'
            if common[0] == PROTOCOLS[0]:
                return await _refused_late(request, f"unable to upgrade connection: {said}")
            raise ApiError(500, said) from error
        except aiohttp.ClientConnectorError as error:
            if common[0] == PROTOCOLS[0]:
                return await _refused_late(request, f"error sending request: {error}")
            raise _unreachable(error) from error
        return await _joined(request, upstream, common[0])

    def _container(self, pod: Stored, asked: str) -> str:
        spec = pod.value["spec"]
        everything = [*spec.get("containers", []), *(spec.get("initContainers") or [])]
        names = [container["name"] for container in everything]
        pod_name = pod.value["metadata"]["name"]
        if not asked:
            if len(spec["containers"]) > 1:
                choices = " ".join(c["name"] for c in spec["containers"])
                raise bad_request(
                    f"a container name must be specified for pod {pod_name}, choose one of: "
                    f"[{choices}]"
                )
            return str(names[0])
        if asked not in names:
            raise bad_request(f"container {asked} is not valid for pod {pod_name}")
        return asked

    def _url(self, pod: Stored, what: str, container: str) -> str:
        metadata, node_name = pod.value["metadata"], pod.value["spec"]["nodeName"]
        node = self._store.get(_NODES, "", node_name)
        if node is None:
            raise ApiError(404, f'nodes "{node_name}" not found')
        return (
            f"{_address(node.value)}/{what}/{metadata['namespace']}/{metadata['name']}/{container}"
        )

    def _client(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=self._trust))
        return self._session


async def _refused_late(request: web.Request, why: str) -> web.StreamResponse:
    downstream = web.WebSocketResponse(protocols=PROTOCOLS[:1], autoclose=False)
    await downstream.prepare(request)
    said = f"Internal error occurred: {why}"
    details = {"causes": [{"message": why}]}
    await _tell(downstream, status="Failure", reason="InternalError", code=500, message=said,
                details=details)  # fmt: skip
    await downstream.close()
    return downstream


async def _tell(downstream: web.WebSocketResponse, **status: object) -> None:
    with contextlib.suppress(ConnectionError, RuntimeError):
        await downstream.send_bytes(_STATUS + json.dumps({"metadata": {}} | status).encode())


async def _joined(
    request: web.Request, upstream: aiohttp.ClientWebSocketResponse, protocol: str
) -> web.StreamResponse:
    downstream = web.WebSocketResponse(
        protocols=(protocol,), max_msg_size=_FRAME_BYTES, autoclose=False
    )
    await downstream.prepare(request)
    try:
        async with asyncio.TaskGroup() as tasks:
            to_kubelet = tasks.create_task(_pump(downstream, upstream))
            is_told = await _pump(upstream, downstream)
            to_kubelet.cancel()
            if protocol == PROTOCOLS[0] and not is_told:
                # client-go, which the server uses for v5, takes the end of the connection to the
                # kubelet for a success (``watchErrorStream``).
                await _tell(downstream, status="Success")
    finally:
        await upstream.close()
        if protocol == PROTOCOLS[0]:
            await downstream.close()
        elif request.transport is not None:
            # With v4 a real server ends the connection without a close frame: clients see 1006.
            request.transport.close()
    return downstream


async def _pump(
    source: web.WebSocketResponse | aiohttp.ClientWebSocketResponse,
    sink: web.WebSocketResponse | aiohttp.ClientWebSocketResponse,
) -> bool:
    """Forward messages until *source* ends; return whether one of them was the Status.

    The kubelet also notices the end of a client.
    """
    is_told = False
    try:
        async for message in source:
            if message.type is aiohttp.WSMsgType.BINARY:
                is_told = is_told or (message.data[:1] == _STATUS and len(message.data) > 1)
                await sink.send_bytes(message.data)
            elif message.type is aiohttp.WSMsgType.TEXT:
                await sink.send_str(message.data)
    except (ConnectionError, RuntimeError):
        pass
    if isinstance(sink, aiohttp.ClientWebSocketResponse):
        await sink.close()
    return is_told


def _address(node: Object) -> str:
    status = node.get("status", {})
    addresses = {a["type"]: a["address"] for a in status.get("addresses", [])}
    port = ((status.get("daemonEndpoints") or {}).get("kubeletEndpoint") or {}).get("Port", 10250)
    return f"https://{addresses.get('InternalIP', '127.0.0.1')}:{port}"


def _unreachable(error: Exception) -> ApiError:
    return ApiError(500, f"error dialing backend: {error}")
