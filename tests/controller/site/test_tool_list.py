"""Tests the deployment's file of tools, as the controller reads it at start."""

from __future__ import annotations

from pathlib import Path

from controller.site.job_defaults import read_pod_settings
from shared.settings import Environment

FILE = """
tools:
  board: {image: board, port: 6006}
  studio: {image: studio, port: 8080, service_workers: true}
"""


def test_a_tool_without_endpoint_is_reported_at_start(tmp_path: Path) -> None:
    file = tmp_path / "tools.yaml"
    file.write_text(FILE)
    environment = Environment({"FUMAROLE_CONTROLLER_TOOLS_FILE": str(file)})
    assert set(read_pod_settings(environment).tools.tools) == {"board", "studio"}
    assert environment.problems == []
    (warning,) = environment.warnings
    assert "the tool studio" in warning
    assert "browsers cannot open it" in warning


def test_an_undeclared_requirement_of_a_tool_is_named(tmp_path: Path) -> None:
    file, products = tmp_path / "tools.yaml", tmp_path / "products.yaml"
    file.write_text(
        "shared_volumes: [home, hone]\n"
        "tools:\n"
        "  board: {image: board, port: 6006, product: small}\n"
        "  studio: {image: studio, port: 8080, product: smal}\n"
    )
    products.write_text("products: {small: {cpu: 1, memory: 1Gi}}")
    environment = Environment(
        {
            "FUMAROLE_CONTROLLER_TOOLS_FILE": str(file),
            "FUMAROLE_CONTROLLER_PRODUCTS_FILE": str(products),
            "FUMAROLE_CONTROLLER_VOLUMES": "home=claim",
        }
    )
    read_pod_settings(environment)
    assert environment.problems == []
    volume, product = environment.warnings
    assert "the volume hone" in volume
    assert "the tool studio an unknown product" in product
