"""Tests a terminal in a browser whose network is cut while its shell writes."""

from __future__ import annotations

import asyncio
import hashlib
import json
from typing import Any

import aiohttp
import pytest
from playwright.async_api import Browser, Page, expect

from deploy.local.smoke.gateway import client
from deploy.local.system import LocalSystem
from tests.e2e.sessions import PATIENCE_SECONDS, open_session, signed_in
from tests.e2e.socks_proxy import Wire
from tests.e2e.users import Person

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.needs("chromium"),
    pytest.mark.timeout(600),
]

BLOCKS, FIRST, LINES = 50, 10, 5000
# Writes 1 MB, then 4 MB more after Enter is pressed.
WRITE = (
    b'w() { awk "BEGIN { for (i = $1; i < $2; i++) { for (j = 0; j < %d; j++) '
    b'printf \\"%%02d %%015d\\\\n\\", i, j; fflush(); system(\\"sleep %.2f\\") } }"; }; '
    b'stty -echo; w 0 %d; read -r go; w %d %d; echo "do"ne\n'
)
RECORD = """
Object.defineProperty(globalThis, "fumaroleTerminal", { configurable: true, set(terminal) {
  Object.defineProperty(globalThis, "fumaroleTerminal", { value: terminal });
  const write = terminal.write.bind(terminal);
  globalThis.transcript = { pieces: [], size: 0, ours: [] };
  terminal.write = (data, done) => {
    if (typeof data === "string") transcript.ours.push(data);
    else transcript.size += transcript.pieces.push(data.slice()) && data.length;
    write(data, done);
  };
} });
"""
HASH = """async (size) => {
  const whole = await new Blob(transcript.pieces).slice(0, size).arrayBuffer();
  const hash = new Uint8Array(await crypto.subtle.digest("SHA-256", whole));
  return Array.from(hash, (byte) => byte.toString(16).padStart(2, "0")).join("");
}"""


class ConnectedUser:
    """Another user of the same shell, whose network is not cut."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse[bool]) -> None:
        self.socket = socket
        self.output = bytearray()

    async def see(self, wanted: bytes) -> None:
        searched = 0
        async with asyncio.timeout(PATIENCE_SECONDS * 5):
            while self.output.find(wanted, searched) < 0:
                searched = max(0, len(self.output) - len(wanted))
                message = await self.socket.receive()
                if message.type is aiohttp.WSMsgType.BINARY:
                    self.output += message.data
                assert message.type in (aiohttp.WSMsgType.BINARY, aiohttp.WSMsgType.TEXT)


async def shown(page: Page) -> Any:
    return await page.evaluate("transcript.size")


@pytest.mark.usefixtures("shells")
@pytest.mark.parametrize(
    ("seconds", "silently"),
    [(2.0, False), pytest.param(60.0, True, marks=pytest.mark.long)],
    ids=["reset", "60s"],
)
async def test_a_cut_in_the_middle_of_much_output_loses_and_repeats_no_byte(
    system: LocalSystem, browser: Browser, seconds: float, silently: bool
) -> None:
    async with Wire.laid() as wire, signed_in(system.address) as user, client() as http:
        context = await browser.new_context(proxy={"server": wire.url})
        await context.add_init_script(RECORD)
        ada = await Person.arrive(context, system.address, "ada")
        job = await ada.start("Shell")
        await ada.running(job)
        page = await ada.open(job)
        await expect(page.locator(".xterm-rows")).to_contain_text("$")
        opened = await open_session(http, user, job)
        path = "/.fumarole/connect?after=0"
        async with opened.websocket(path, "fumarole.terminal.v1") as socket:
            witness = ConnectedUser(socket)
            await witness.see(b"$")
            await socket.send_str(json.dumps({"type": "resize", "cols": 200, "rows": 50}))
            await socket.send_bytes(WRITE % (LINES, seconds / 30, FIRST, FIRST, BLOCKS))
            watching = asyncio.ensure_future(witness.see(b"\r\ndone\r\n"))
            async with asyncio.timeout(PATIENCE_SECONDS * 2):
                while await shown(page) < 500_000:
                    await asyncio.sleep(0.05)
            wire.cut(silently=silently)
            before = await shown(page)
            await socket.send_bytes(b"\n")
            await asyncio.sleep(seconds)
            wire.mend()
            await watching
        try:
            async with asyncio.timeout(PATIENCE_SECONDS * 2):
                while await shown(page) < len(witness.output):
                    await asyncio.sleep(0.1)
            lines = b"".join(
                b"%02d %015d\r\n" % (i, j) for i in range(BLOCKS) for j in range(LINES)
            )
            assert lines in witness.output
            assert before < len(lines) // 2, "most was written while there was no network"
            # A user who has typed nothing may still receive the prompt, which came with the last
            # output.
            size = await shown(page)
            witnessed = bytes(witness.output)
            assert size - len(witnessed) < 1000
            expected = hashlib.sha256(witnessed).hexdigest()
            assert await page.evaluate(HASH, len(witnessed)) == expected
            # The screen was reset once only: the client resumed, and nothing was shown again.
            assert await page.evaluate("transcript.ours") == ["\x18\x1bc"]
        finally:
            await ada.stop(job)
            await context.close()
