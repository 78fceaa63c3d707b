"""Addresses of Pods: a block of the loopback network for each kubelet on this machine."""

import random
import socket
from collections import deque
from ipaddress import IPv4Address, IPv4Network
from typing import Final

NETWORK: Final = IPv4Network("127.64.0.0/10")
_BLOCK_BITS: Final = 24
_TRIES: Final = 1000


class Addresses:
    """Gives out addresses of a block that no other kubelet on this machine has.

    A socket in the kernel's abstract name space claims the block. So the claim ends with the
    process, however that ends.
    """

    def __init__(self, chance: random.Random) -> None:
        # Not from the seed: two clusters with the same seed run side by side.
        self._claims: list[socket.socket] = []
        self._free: deque[str] = deque()
        # Both are legal: give out the freed address again at once, or all the others first.
        self._at_once = chance.random() < 0.5
        self._claim_block()

    def take(self) -> str:
        """Return an address that no Pod of this kubelet has."""
        if not self._free:
            self._claim_block()
        return self._free.popleft()

    def give_back(self, address: str) -> None:
        """Release *address*."""
        if self._at_once:
            self._free.appendleft(address)
        else:
            self._free.append(address)

    def close(self) -> None:
        """Release the blocks."""
        for claim in self._claims:
            claim.close()

    def _claim_block(self) -> None:
        blocks = 2 ** (_BLOCK_BITS - NETWORK.prefixlen)
        for _ in range(_TRIES):
            base = int(NETWORK.network_address) + (random.randrange(blocks) << 8)  # noqa: S311 - no secret
            claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            try:
                claim.bind(f"\0embedded-kubelet-{IPv4Address(base)}")
            except OSError:
                claim.close()
                continue
            self._claims.append(claim)
            self._free.extend(str(IPv4Address(base + host)) for host in range(2, 255))
            return
        raise RuntimeError("no block of loopback addresses is free")
