"""The deployment's file of tools, as the controller reads it when it starts."""

from __future__ import annotations

from pathlib import Path

from controller.site.pod_settings import read_pod_settings
from shared.settings import Environment

FILE = """
tools:
  board: {image: board, port: 6006}
  studio: {image: studio, port: 8080, service_workers: true}
"""


def test_a_tool_that_no_browser_opens_is_named_when_the_controller_starts(tmp_path: Path) -> None:
    file = tmp_path / "tools.yaml"
    file.write_text(FILE)
    environment = Environment({"FUMAROLE_CONTROLLER_TOOLS_FILE": str(file)})
    assert set(read_pod_settings(environment).tools.tools) == {"board", "studio"}
    assert environment.problems == []
    (warning,) = environment.warnings
    assert "the tool studio" in warning
    assert "no browser opens it" in warning
