"""Makes the command and the environment of the job's typed parameters.

No shell is ever involved: every word of the command is one argument, and a value reaches the
program as it is, whatever characters it holds. Kubernetes expands ``$(NAME)`` and ``$$`` in both,
so values are escaped. Secrets are in a Secret and are referred to; no manifest of a pod or a
VolcanoJob holds one.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import ClassVar, Final

from controller.jobs.builder import Companion, JobBuilder
from controller.jobs.model import Job, ParameterRef, Word
from controller.jobs.parameters import SecretParameter
from controller.jobs.plugin import JobPlugin
from controller.jobs.problems import make_path
from controller.volcano.manifest import Variable, escape, reference
from controller.volcano.names import companion_name

RESERVED_PREFIXES: Final = ("FUMAROLE_", "VC_", "VK_")
"""Variables that we and Volcano set."""

_COMPANION: Final = "parameters"


class ParameterPlugin(JobPlugin):
    """Fills in command and environment, and makes the Secret that holds the secret parameters."""

    name: ClassVar[str] = "parameter"
    fields: ClassVar[frozenset[str]] = frozenset({"invocation", "parameters"})

    async def on_create(self, job: Job, builder: JobBuilder) -> None:
        """Write the invocation into every container."""
        for path, message in _problems(job):
            builder.refuse(path, message)
        if builder.problems:
            return
        for container in builder.containers():
            container.environment.extend(_environment(job))
            container.command = [_written(job, word) for word in job.invocation.command]
        if job.secrets():
            builder.add_companion(_secret(job))


def _problems(job: Job) -> Iterator[tuple[str, str]]:
    for index, word in enumerate(job.invocation.command):
        if isinstance(word, ParameterRef) and word.parameter not in job.parameters:
            yield f"invocation.command[{index}].parameter", "there is no such parameter"
    if job.invocation.command[:1] == [""]:
        yield "invocation.command[0]", "the program's name is empty"
    for name, word in job.invocation.environment.items():
        path = make_path(["invocation", "environment", name])
        if isinstance(word, ParameterRef) and word.parameter not in job.parameters:
            yield f"{path}.parameter", "there is no such parameter"
        if name.startswith(RESERVED_PREFIXES):
            yield path, f"variables that begin with {', '.join(RESERVED_PREFIXES)} are reserved"


def _environment(job: Job) -> Iterator[Variable]:
    # Those that others refer to come first: Kubernetes knows only what stands before.
    for name in sorted(_secrets_within_text(job)):
        yield Variable(name=_variable_of(name), secret=(_secret_name(job), name))
    for name, word in job.invocation.environment.items():
        if isinstance(word, ParameterRef) and not word.prefix and _is_secret(job, word):
            yield Variable(name=name, secret=(_secret_name(job), word.parameter))
        else:
            yield Variable(name=name, value=_written(job, word))


def _secrets_within_text(job: Job) -> set[str]:
    words = [
        *job.invocation.command,
        *(
            w
            for w in job.invocation.environment.values()
            if isinstance(w, ParameterRef) and w.prefix
        ),
    ]
    return {w.parameter for w in words if isinstance(w, ParameterRef) and _is_secret(job, w)}


def _written(job: Job, word: Word) -> str:
    if isinstance(word, str):
        return escape(word)
    parameter = job.parameters[word.parameter]
    if isinstance(parameter, SecretParameter):
        return escape(word.prefix) + reference(_variable_of(word.parameter))
    return escape(word.prefix + parameter.written())


def _is_secret(job: Job, word: ParameterRef) -> bool:
    return isinstance(job.parameters[word.parameter], SecretParameter)


def _variable_of(parameter: str) -> str:
    # Reversible, so that two parameters never share a variable: names may have hyphens.
    return "FUMAROLE_SECRET_" + parameter.replace("_", "__").replace("-", "_H")


def _secret_name(job: Job) -> str:
    return companion_name(job.id, _COMPANION)


def _secret(job: Job) -> Companion:
    data = {
        name: base64.b64encode(value.encode()).decode() for name, value in job.secrets().items()
    }
    return Companion(
        kind="Secret",
        name=_secret_name(job),
        manifest={"type": "Opaque", "data": data},
        # Its pods cannot start without it.
        when="before",
    )
