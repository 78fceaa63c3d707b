from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from controller.volcano.manifest import (
    Container,
    PodTemplate,
    Task,
    Variable,
    VolcanoJob,
    escape,
    reference,
)
from controller.volcano.quantities import Quantity


def expand(text: str, variables: dict[str, str]) -> str:
    """Expand as Kubernetes does (third_party/forked/golang/expansion), from its description."""
    out, at = "", 0
    while at < len(text):
        rest = text[at:]
        if rest.startswith("$$"):
            out, at = out + "$", at + 2
        elif match := re.match(r"\$\(([^)]*)\)", rest, re.DOTALL):
            out += variables.get(match[1], match[0])
            at += len(match[0])
        else:
            out, at = out + rest[0], at + 1
    return out


TRICKY = st.text(st.sampled_from("$()aHOME_{}\\'\" \n\t;|&`"), max_size=30) | st.text()


@given(TRICKY)
def test_an_escaped_value_reaches_the_program_unchanged(value: str) -> None:
    assert expand(escape(value), {"HOME": "/root", "": "x", "a": "b"}) == value


@given(TRICKY, TRICKY)
def test_a_reference_after_an_escaped_prefix_is_expanded(prefix: str, secret: str) -> None:
    assert expand(escape(prefix) + reference("S"), {"S": secret}) == prefix + secret


def test_empty_fields_are_omitted_from_a_container() -> None:
    made = Container(name="job", image="x", resources={"cpu": Quantity(500)}).manifest()
    assert made == {
        "name": "job",
        "image": "x",
        "imagePullPolicy": "IfNotPresent",
        "resources": {"requests": {"cpu": "500m"}, "limits": {"cpu": "500m"}},
    }


def test_an_empty_variable_keeps_its_value() -> None:
    assert Variable(name="A", value="").manifest() == {"name": "A", "value": ""}


def test_a_variable_of_a_secret_holds_no_value() -> None:
    assert Variable(name="A", secret=("s", "k")).manifest() == {
        "name": "A",
        "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}},
    }


def test_a_volcano_job_sets_every_field_that_volcano_would_default() -> None:
    template = PodTemplate(containers=[], more={"restartPolicy": "Never"})
    job = VolcanoJob(
        name="j-1",
        namespace="n",
        min_available=2,
        plugins={"svc": []},
        tasks=[Task(name="job", replicas=2, template=template)],
    )
    assert job.manifest()["spec"] == {
        "schedulerName": "volcano",
        "queue": "default",
        "minAvailable": 2,
        "maxRetry": 1,
        "ttlSecondsAfterFinished": 3600,
        "plugins": {"svc": []},
        "tasks": [
            {
                "name": "job",
                "replicas": 2,
                "template": {
                    "metadata": {},
                    "spec": {"schedulerName": "volcano", "restartPolicy": "Never"},
                },
            }
        ],
    }
