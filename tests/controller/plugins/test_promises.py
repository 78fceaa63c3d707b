"""Tests docs/plugins/promises.md: promises and faults of other systems, with their tests.

The page lists them all. The tests here cover those that belong to no single plugin.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from controller.plugins import PLUGINS
from tests.controller.samples import make_job

PAGE = (Path(__file__).parents[3] / "docs/plugins/promises.md").read_text()
ROWS = [line for line in PAGE.splitlines() if line.startswith("| ") and "::" in line]


def test_network_ip_is_refused() -> None:
    assert "network_ip" not in [plugin.name for plugin in PLUGINS]
    with pytest.raises(ValidationError, match="extra_forbidden"):
        make_job(addresses=["192.0.2.1"])


def test_every_documented_plugin_exists_in_a_justified_order() -> None:
    names = [plugin.name for plugin in PLUGINS]
    documented = {
        "accounting", "connect_to_job", "expiry", "fair_share", "file_mount", "kata_container",
        "minikube", "miscellaneous", "multi_node", "network_limit", "parameter", "proxy",
        "shared_memory", "task", "ingress",
    }  # fmt: skip
    assert documented <= set(names)
    assert (names[0], names[-1]) == ("task", "proxy")
    for plugin in PLUGINS[1:]:
        # Each plugin declares its place, or another plugin names it, with a reason beside it.
        said = re.search(r"(    # .*\n)?    (after|before): ", inspect.getsource(plugin))
        assert said or any(plugin.name in other.after + other.before for other in PLUGINS)
        assert not said or re.search(r"    # .*\n    (after|before): ", inspect.getsource(plugin))


@pytest.mark.parametrize("row", ROWS, ids=[row.split("|")[1].strip() for row in ROWS])
def test_every_citation_of_a_row_is_well_formed(row: str) -> None:
    named = re.findall(r"`([a-z0-9_/.]+\.py)::(test_\w+)`", row)
    assert len(named) == row.count("::")
