from __future__ import annotations

from pathlib import Path

import pytest

from controller.site.job_defaults import read_pod_settings
from controller.site.product_list import Catalogue, read_catalogue
from shared.settings import Environment

FILE = """
default: small
products:
  small: {cpu: 1, memory: 2Gi}
  gpu-1:
    title: One GPU
    cpu: 8
    memory: 64Gi
    gpu: 1
    gpu_resource: amd.com/gpu
    node_labels: {machine: gpu, zone: [a, b]}
    tolerations: [{key: gpu, value: "yes", effect: NoSchedule}, {key: spot}]
    runtime: kata
    overhead: {cpu: 1}
    network: {egress: 10G}
    price: {amount: "1.25", unit: EUR}
    features: {vnc: false, kinds: [training]}
"""


def write(folder: Path, text: str) -> str:
    path = folder / "products.yaml"
    path.write_text(text)
    return str(path)


def test_a_catalogue_is_read(tmp_path: Path) -> None:
    catalogue = read_catalogue(write(tmp_path, FILE))
    product = catalogue.find("gpu-1")
    assert product is not None
    assert str(product.memory) == "64Gi"
    assert product.node_selector() == {"machine": "gpu"}
    assert "zone" in str(product.affinity())
    assert [one.manifest() for one in product.tolerations] == [
        {"key": "gpu", "operator": "Equal", "value": "yes", "effect": "NoSchedule"},
        {"key": "spot", "operator": "Exists"},
    ]
    assert not product.features.vnc
    assert product.features.web


def test_a_job_without_product_gets_the_default(tmp_path: Path) -> None:
    catalogue = read_catalogue(write(tmp_path, FILE))
    assert catalogue.find(None) is catalogue.products["small"]
    assert catalogue.find("none") is None
    assert Catalogue().find(None) is None


def test_every_error_is_reported_with_its_path(tmp_path: Path) -> None:
    text = """
products:
  a: {cpu: 0, memory: 1Gi}
  b: {cpu: 1, memory: 1Gi, colour: red, price: {amount: "-1", unit: EUR}}
  C: {cpu: 1, memory: 1Gi}
"""
    with pytest.raises(ValueError, match="cpu") as caught:
        read_catalogue(write(tmp_path, text))
    message = str(caught.value)
    for path in ("products.a.cpu", "products.b.colour", "products.b.price.amount", "products.C"):
        assert path in message


@pytest.mark.parametrize("text", ["[", "- a", "default: x", "products: {a: 1}"])
def test_a_malformed_catalogue_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        read_catalogue(write(tmp_path, text))


def test_a_missing_file_ends_the_process_and_names_its_setting(tmp_path: Path) -> None:
    environment = Environment(
        {
            "FUMAROLE_CONTROLLER_PRODUCTS_FILE": str(tmp_path / "none"),
            "FUMAROLE_CONTROLLER_VOLUMES": "a=X",
            "FUMAROLE_CONTROLLER_PRIORITIES": "high=A",
            "FUMAROLE_CONTROLLER_RANKS_FOLDER": "etc",
            "FUMAROLE_CONTROLLER_MINIKUBE": "perhaps",
            "FUMAROLE_CONTROLLER_SECCOMP": "perhaps",
            "FUMAROLE_CONTROLLER_HELPER_IMAGE": "-v",
        }
    )
    read_pod_settings(environment)
    assert len(environment.problems) == 7
