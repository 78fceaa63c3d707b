"""The file of the keys that sign assertions, taken anew when it changes.

``python -m gateway.assertion_keys FILE`` prints the JSON Web Key set of its public keys, for apps
that cannot fetch it.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from prometheus_client.core import CounterMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from gateway.core.access.assertions import AssertionKeys, Assertions, read_assertion_keys
from gateway.tls import ReloadedFiles
from shared.settings import EXIT_BAD_SETTINGS

log = logging.getLogger(__name__)


def load_assertion_keys(path: Path) -> AssertionKeys:
    """Return the keys in the file *path*.

    Raises:
        OSError: If it cannot be read.
        ValueError: If it does not hold keys for ES256.
    """
    return read_assertion_keys(path.read_bytes())


class AssertionKeyFile(ReloadedFiles, Collector):
    """Keeps :attr:`assertions` signing with the last good content of *path*.

    Raises:
        OSError: If the file cannot be read.
        ValueError: If it does not hold keys for ES256.
    """

    def __init__(self, path: Path, *, issuer: str) -> None:
        super().__init__(path)
        self.reloads = 0
        self.failures = 0
        self._path = path
        self.assertions = Assertions(load_assertion_keys(path), issuer=issuer)

    def _exchange(self) -> None:
        try:
            keys = load_assertion_keys(self._path)
        except (OSError, ValueError) as error:
            self.failures += 1
            log.error("the new assertion keys cannot be used, the last ones stay: %s", error)
            return
        self.assertions.take(keys)
        self.reloads += 1
        log.info("took new assertion keys", extra={"kid": keys.kid})

    def collect(self) -> Iterator[Metric]:
        """Yield how keys and assertions fare."""
        reloads = CounterMetricFamily(
            "fumarole_gateway_assertion_key_reloads",
            "New files of assertion keys by result.",
            labels=["result"],
        )
        reloads.add_metric(["taken"], self.reloads)
        reloads.add_metric(["refused"], self.failures)
        yield reloads
        yield CounterMetricFamily(
            "fumarole_gateway_assertions_signed",
            "Assertions of users' identities that were signed for apps.",
            value=self.assertions.signed,
        )


def main(arguments: Sequence[str]) -> None:
    """Print the public keys of the file that is named."""
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
