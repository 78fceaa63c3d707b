"""A Redis in memory: the commands that the bus uses, and every failure that matters to it."""

from __future__ import annotations

import asyncio
import copy
import hashlib
import json
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from random import Random
from typing import Any, Self

from redis.exceptions import ConnectionError as RedisConnectionError

from shared.bus.scripts import NOTICE, PUBLISH, SWAP

REMEMBERED = 101


class Server:
    """The data, the channel, and its subscribers.

    Args:
        random: Decides the fate of each message and each reply.
    """

    def __init__(self, random: Random) -> None:
        self.random = random
        self.data: dict[str, Any] = {}
        self.before: deque[dict[str, Any]] = deque(maxlen=REMEMBERED)
        self.subscriptions: list[Subscription] = []
        self.run = 1
        self.alive = True
        self.loss = 0.0
        self.silence = 0.0

    # Faults

    def kill(self) -> None:
        """End at once, with all data."""
        self.alive = False
        self.data = {}
        self._break()

    def start(self) -> None:
        """Start again, empty after :meth:`kill`."""
        self.alive = True
        self.run += 1

    def fail_over(self, forget: int) -> None:
        """Continue as another process that lacks the last *forget* writes."""
        for _ in range(min(forget, len(self.before))):
            self.data = self.before.pop()
        self.run += 1
        self._break()

    def restore(self, forget: int) -> None:
        """Restore the data of *forget* writes ago, in the same process."""
        for _ in range(min(forget, len(self.before))):
            self.data = self.before.pop()

    def flush(self) -> None:
        """Lose all data, and continue."""
        self.data = {}

    def _break(self) -> None:
        for one in self.subscriptions:
            one.broken.set()
        self.subscriptions.clear()

    # Commands

    def publish(self, channel: str, message: bytes) -> None:
        """Deliver to all subscribers: perhaps not, perhaps twice, perhaps out of order."""
        loop = asyncio.get_running_loop()
        for one in self.subscriptions:
            if one.channel != channel or self.random.random() < self.loss:
                continue
            for _ in range(2 if self.random.random() < self.loss else 1):
                late = self.random.random() < self.loss
                loop.call_later(self.random.random() if late else 0.001, one.put, message)

    def wrote(self) -> None:
        """Record the state before a write; callers call this just before the write."""
        self.before.append(copy.deepcopy(self.data))

    def of(self, key: str, kind: Callable[[], Any]) -> Any:
        """Return the value of *key*, and create it if it is missing."""
        return self.data.setdefault(key, kind())

    def read(self, key: str, kind: Callable[[], Any]) -> Any:
        """Return the value of *key*, or an empty value if it is missing."""
        return self.data.get(key, kind())


class Subscription:
    """One subscriber's connection."""

    def __init__(self, channel: str) -> None:
        self.channel = channel
        self.messages: asyncio.Queue[bytes] = asyncio.Queue()
        self.broken = asyncio.Event()
        self.cut: Callable[[], bool] = lambda: False

    def put(self, message: bytes) -> None:
        if not self.cut():
            self.messages.put_nowait(message)


class Client:
    """One client's view of the server; ``cut`` keeps the client from reaching it."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.cut = False

    async def turn(self, work: Callable[[], Any]) -> Any:
        """Do *work* on the server if it is reachable; the reply may be lost."""
        await asyncio.sleep(0.001)
        self._check()
        result = work()
        await asyncio.sleep(0.001)
        self._check()
        if self.server.random.random() < self.server.silence:
            raise RedisConnectionError("the answer was lost")
        return result

    def _check(self) -> None:
        if self.cut or not self.server.alive:
            raise RedisConnectionError("it cannot be reached")

    # The commands that the bus uses

    def register_script(self, text: str) -> Callable[..., Awaitable[bytes]]:
        script = {PUBLISH: publish, SWAP: swap, NOTICE: notice}[text]

        async def call(keys: list[str], args: list[Any]) -> bytes:
            response: str = await self.turn(lambda: script(self.server, keys, args))
            return response.encode()

        return call

    async def hset(self, key: str, items: list[Any]) -> None:
        def work() -> None:
            self.server.wrote()
            pairs = zip(items[::2], items[1::2], strict=True)
            self.server.of(key, dict).update({_bytes(name): _bytes(v) for name, v in pairs})

        await self.turn(work)

    async def zadd(self, key: str, members: Mapping[str, float]) -> None:
        def work() -> None:
            self.server.wrote()
            self.server.of(key, dict).update({_bytes(m): score for m, score in members.items()})

        await self.turn(work)

    async def expire(self, key: str, seconds: int) -> None:
        del key, seconds

    def pipeline(self, *, transaction: bool) -> _Pipeline:
        assert transaction
        return _Pipeline(self)

    def pubsub(self) -> _PubSub:
        return _PubSub(self)


class _Pipeline:
    def __init__(self, client: Client) -> None:
        self._client = client
        self._calls: list[Callable[[Server], Any]] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    def hgetall(self, key: str) -> None:
        self._calls.append(lambda server: dict(server.read(key, dict)))

    def zrange(self, key: str, first: int, last: int, *, withscores: bool) -> None:
        assert (first, last, withscores) == (0, -1, True)
        self._calls.append(lambda server: list(server.read(key, dict).items()))

    def xrange(self, key: str, *, min: str, count: int) -> None:
        after = int(min.removeprefix("(").removesuffix("-0"))

        def read(server: Server) -> Any:
            entries = [(seq, event) for seq, event in server.read(key, list) if seq > after]
            return [(f"{seq}-0".encode(), {b"event": event}) for seq, event in entries[:count]]

        self._calls.append(read)

    def info(self, *sections: str) -> None:
        assert sections == ("server", "replication")
        self._calls.append(lambda server: {"role": "master", "run_id": f"run{server.run}"})

    def set(self, key: str, value: str, *, nx: bool, get: bool, ex: int) -> None:
        assert (nx, get) == (True, True)
        assert ex > 0

        def mark(server: Server) -> bytes | None:
            before: bytes | None = server.data.get(key)
            if before is None:
                server.wrote()
                server.data[key] = value.encode()
            return before

        self._calls.append(mark)

    async def execute(self) -> list[Any]:
        server = self._client.server
        results: list[Any] = await self._client.turn(lambda: [call(server) for call in self._calls])
        return results


class _PubSub:
    def __init__(self, client: Client) -> None:
        self._client = client
        self._subscription: Subscription | None = None
        self._confirmed = False

    async def subscribe(self, channel: str) -> None:
        def work() -> None:
            self._subscription = Subscription(channel)
            self._subscription.cut = lambda: self._client.cut
            self._client.server.subscriptions.append(self._subscription)

        await self._client.turn(work)

    async def get_message(self, *, timeout: float) -> dict[str, Any] | None:
        assert self._subscription is not None
        if not self._confirmed:
            self._confirmed = True
            return {"type": "subscribe", "data": 1}
        broken = asyncio.ensure_future(self._subscription.broken.wait())
        message = asyncio.ensure_future(self._subscription.messages.get())
        try:
            await asyncio.wait(
                [broken, message], timeout=timeout, return_when=asyncio.FIRST_COMPLETED
            )
            if message.done():
                return {"type": "message", "data": message.result()}
            if broken.done():
                raise RedisConnectionError("the connection was lost")
            return None
        finally:
            broken.cancel()
            message.cancel()

    async def aclose(self) -> None:
        if self._subscription in self._client.server.subscriptions:
            self._client.server.subscriptions.remove(self._subscription)


# The scripts in Python


def publish(server: Server, keys: list[str], args: list[Any]) -> str:
    """Do the same as the script PUBLISH."""
    routes, revoked, head_key, log = keys
    epoch, seq, term, channel, verb, field, value, event, _, _, *signing = args
    head = server.read(head_key, dict)
    if not all(name in head for name in (b"epoch", b"seq", b"term", b"routes", b"revoked")):
        return "missing"
    at = int(head[b"seq"])
    if int(head[b"term"]) > term:
        return "term"
    if head[b"epoch"] != epoch.encode():
        return "epoch"
    if head.get(b"server", b"") not in (b"", f"run{server.run}".encode()):
        return "server"
    sizes = len(server.read(routes, dict)), len(server.read(revoked, dict))
    if sizes != (int(head[b"routes"]), int(head[b"revoked"])):
        return "counts"
    if verb == "beat":
        if at != seq:
            return "seq"
        _sign(server, revoked, head, signing)
        server.publish(channel, event)
        return "done"
    this = hashlib.sha1(event, usedforsecurity=False).hexdigest().encode()
    if at == seq + 1 and head.get(b"last") == this:
        return "done"
    if at != seq:
        return "seq"
    server.wrote()
    _sign(server, revoked, head, signing)
    _change(server, routes, revoked, verb, _bytes(field), value)
    head |= {b"seq": b"%d" % (seq + 1), b"term": b"%d" % term, b"last": this}
    head[b"routes"] = b"%d" % len(server.read(routes, dict))
    head[b"revoked"] = b"%d" % len(server.read(revoked, dict))
    server.of(log, list).append((seq + 1, event))
    server.publish(channel, event)
    return "done"


def _change(
    server: Server, routes: str, revoked: str, verb: str, field: bytes, value: bytes
) -> None:
    if verb == "upsert":
        server.of(routes, dict)[field] = value
    elif verb == "remove":
        server.of(routes, dict).pop(field, None)
    else:
        held = server.of(revoked, dict)
        held[field] = max(float(value), held.get(field, 0.0))


def _sign(server: Server, revoked: str, head: dict[bytes, bytes], signing: list[Any]) -> None:
    if signing:
        held = server.read(revoked, dict)
        for member in [one for one, score in held.items() if score < float(signing[1])]:
            del held[member]
        head |= {b"signed": _bytes(signing[0]), b"revoked": b"%d" % len(held)}


def swap(server: Server, keys: list[str], args: list[Any]) -> str:
    """Do the same as the script SWAP."""
    term, channel, event, _, routes, revoked, *fields = args
    head = server.read(keys[2], dict)
    if b"term" in head and int(head[b"term"]) > term:
        return "term"
    pending = server.read(keys[4], dict), server.read(keys[5], dict)
    if (len(pending[0]), len(pending[1])) != (routes, revoked):
        return "counts"
    named = dict(zip(fields[::2], fields[1::2], strict=True)).get("server")
    if named not in (None, f"run{server.run}"):
        return "server"
    server.wrote()
    for key in keys:
        server.data.pop(key, None)
    for key, value in zip(keys[:2], pending, strict=True):
        if value:
            server.data[key] = value
    pairs = zip(fields[::2], fields[1::2], strict=True)
    made = {_bytes(name): _bytes(value) for name, value in pairs}
    server.data[keys[2]] = made | {b"server": f"run{server.run}".encode()}
    server.publish(channel, event)
    return "done"


def notice(server: Server, keys: list[str], args: list[Any]) -> str:
    """Do the same as the script NOTICE."""
    term, channel, _, event = args
    head = server.read(keys[0], dict)
    if not all(name in head for name in (b"epoch", b"seq", b"term")):
        return "missing"
    if int(head[b"term"]) > term:
        return "term"
    place = {"epoch": head[b"epoch"].decode(), "seq": int(head[b"seq"])}
    server.publish(channel, json.dumps(json.loads(event) | place).encode())
    return "done"


def _bytes(value: object) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()
