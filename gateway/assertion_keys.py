"""The file of the keys that sign assertions, which is reloaded when it changes.

``python -m gateway.assertion_keys FILE`` prints the JSON Web Key Set of its public keys, for apps
that cannot fetch it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from prometheus_client.core import CounterMetricFamily
from prometheus_client.metrics_core import Metric

from gateway.core.access.assertions import AssertionKeys, Assertions, read_assertion_keys
from gateway.tls import ReloadedFiles
from shared.settings import EXIT_BAD_SETTINGS


def load_assertion_keys(path: Path) -> AssertionKeys:
    """Return the keys in the file *path*.

    Raises:
        OSError: If it cannot be read.
        ValueError: If it does not hold keys for ES256.
    """
    return read_assertion_keys(path.read_bytes())


class AssertionKeyFile(ReloadedFiles):
    """Keeps :attr:`assertions` on the keys of the last good content of *path*.

    Raises:
        OSError: If the file cannot be read.
        ValueError: If it does not hold keys for ES256.
    """

    def __init__(self, path: Path, *, issuer: str) -> None:
        super().__init__(
            path, what="assertion key file", counter="fumarole_gateway_assertion_key_reloads"
        )
        self.assertions = Assertions(load_assertion_keys(path), issuer=issuer)

    def _load(self) -> Mapping[str, object]:
        keys = load_assertion_keys(*self._files)
        self.assertions.replace_keys(keys)
        return {"kid": keys.kid}

    def collect(self) -> Iterator[Metric]:
        """Yield the number of reloads and of signed assertions."""
        yield from super().collect()
        yield CounterMetricFamily(
            "fumarole_gateway_assertions_signed",
            "Assertions of users' identities signed for apps.",
            value=self.assertions.signed,
        )


def main(arguments: Sequence[str]) -> None:
    """Print the public keys of the file named in *arguments*."""
    if len(arguments) != 1:
        print("usage: python -m gateway.assertion_keys FILE", file=sys.stderr)
        raise SystemExit(EXIT_BAD_SETTINGS)
    try:
        keys = load_assertion_keys(Path(arguments[0]))
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(EXIT_BAD_SETTINGS) from None
    print(keys.jwks.decode())


if __name__ == "__main__":
    main(sys.argv[1:])
