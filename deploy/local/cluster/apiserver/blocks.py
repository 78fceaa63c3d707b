"""The addresses of Services: a block that no other API server on this machine has.

A Service is reached from this machine too, so two clusters must not use the same address.
"""

import random
import socket
from ipaddress import IPv4Network
from typing import Final

SERVICE_NETWORK: Final = IPv4Network("127.128.0.0/10")
"""Service addresses are loopback addresses too: a pod has a route to nothing else."""

_BLOCK_BITS: Final = 20
_TRIES: Final = 100


class ServiceBlock:
    """A block of `SERVICE_NETWORK`, until `close` or the end of the process.

    The claim is a socket in the kernel's abstract name space. So the claim ends with the process,
    however that ends.
    """

    def __init__(self) -> None:
        # The first block is reserved for nodes: their addresses, and their name servers'.
        choices = list(SERVICE_NETWORK.subnets(new_prefix=_BLOCK_BITS))[1:]
        for _ in range(_TRIES):
            # Not from the seed: two clusters with the same seed run side by side.
            network = random.choice(choices)  # noqa: S311 - no secret
            claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            try:
                claim.bind(f"\0embedded-services-{network.network_address}")
            except OSError:
                claim.close()
                continue
            self.network = network
            self._claim = claim
            return
        raise RuntimeError("no block of addresses for Services is free")

    def close(self) -> None:
        """Release the block."""
        self._claim.close()
