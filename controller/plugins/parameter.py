"""Makes command and environment from the job's typed parameters.

No shell is involved: every word of the command is one argument, and the program receives a value
unchanged, whatever characters it has. Kubernetes expands ``$(NAME)`` and ``$$`` in both, so values
are escaped. Secret values are in a Secret and are referenced; no manifest of a pod or a VolcanoJob
has one.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from typing import ClassVar, Final

from controller.jobs.pipeline.builder import Companion, JobBuilder
from controller.jobs.pipeline.plugin import JobPlugin
from controller.jobs.spec.field_types import parse_path, place_of
from controller.jobs.spec.model import Invocation, Job, ParameterRef, Word
from controller.jobs.spec.parameters import (
    ArtefactsParameter,
    DirectoryParameter,
    FileParameter,
    LicenceParameter,
    Parameter,
    SecretParameter,
    secret_of,
)
from controller.jobs.spec.problems import make_path
from controller.volcano.manifest import Variable, escape, reference
from controller.volcano.names import companion_name

RESERVED_PREFIXES: Final = ("FUMAROLE_", "VC_", "VK_")
"""Prefixes of variables that Fumarole and Volcano set."""

LONGEST_WORD: Final = 2**17 - 1
"""Bytes of an argument, or of a variable with its name and ``=``; Linux accepts no more."""

MOST_WRITTEN: Final = 1_400_000
"""Characters of all arguments and variables of a job, plus one for each: a cluster stores no larger
job. A thousand words may each name a parameter with a thousand values.
"""

MOST_SECRET_BYTES: Final = 1 << 20
"""The limit of all secret values together; an API server accepts no larger Secret
(``MaxSecretSize``).
"""

_COMPANION: Final = "parameters"


class ParameterPlugin(JobPlugin):
    """Sets command and environment, and adds the Secret with the secret parameters."""

    name: ClassVar[str] = "parameter"
    # This plugin sets the commands of the tasks' containers.
    after: ClassVar[tuple[str, ...]] = ("task",)
    fields: ClassVar[frozenset[str]] = frozenset({"invocation", "parameters"})

    async def on_create(self, job: Job, builder: JobBuilder) -> None:
        """Write each task's invocation into its container."""
        written = _Written(job, self.context.jobs.working_directory)
        found = [
            problem
            for path, invocation in _invocations(job)
            for problem in written.problems(path, invocation)
        ]
        found += _secret_problems(job)
        for path, message in found:
            builder.refuse(path, message)
        if found:
            return
        for task in job.effective_tasks:
            container = builder.container(task.name)
            container.environment.extend(written.environment(task.invocation))
            container.command = written.command(task.invocation)
        if job.secrets():
            builder.add_companion(_secret(job))


def _invocations(job: Job) -> Iterator[tuple[str, Invocation]]:
    """Yield every invocation that runs, with its path; the job's own only once."""
    if any(task.invocation is job.invocation for task in job.effective_tasks):
        yield "invocation", job.invocation
    for task in job.effective_tasks:
        if task.invocation is not job.invocation:
            yield task.at("invocation"), task.invocation


class _Written:
    """The words of a job's invocations, as the program receives them."""

    def __init__(self, job: Job, working_directory: str) -> None:
        self._job = job
        self._working_directory = working_directory
        self._counted: dict[str, tuple[int, int]] = {}
        self._left = MOST_WRITTEN

    def problems(self, path: str, invocation: Invocation) -> Iterator[tuple[str, str]]:
        """Find words that cannot be written, with their paths."""
        words = (*invocation.command, *invocation.environment.values())
        self._left -= sum(map(self._size, words))
        if self._left < 0:
            yield path, f"becomes more than the {MOST_WRITTEN} characters that a cluster keeps"
            return
        for index, word in enumerate(invocation.command):
            yield from self._of_word(f"{path}.command[{index}]", word)
        for name, word in invocation.environment.items():
            here = f"{path}.{make_path(['environment', name])}"
            yield from self._of_word(here, word, beside=len(name) + 1)
            yield from self._of_variable(here, name, word)
        if invocation.command and self._lacks_program(invocation.command):
            yield f"{path}.command[0]", "the program's name is empty"

    def command(self, invocation: Invocation) -> list[str]:
        """Return the arguments, escaped for the expansion of Kubernetes."""
        return [one for word in invocation.command for one in self._words(word)]

    def environment(self, invocation: Invocation) -> Iterator[Variable]:
        """Yield the variables, referenced ones first: Kubernetes expands only earlier ones."""
        job = self._job
        for name in sorted(self._secrets_within_text(invocation)):
            yield Variable(name=_variable_of(name), secret=(_secret_name(job), name))
        for name, word in invocation.environment.items():
            if isinstance(word, ParameterRef) and not word.prefix and self._is_secret(word):
                yield Variable(name=name, secret=(_secret_name(job), word.parameter))
            else:
                yield from (Variable(name=name, value=value) for value in self._words(word))

    def _of_word(self, path: str, word: Word, beside: int = 0) -> Iterator[tuple[str, str]]:
        if isinstance(word, ParameterRef) and word.parameter not in self._job.parameters:
            if not word.optional:
                yield f"{path}.parameter", "there is no such parameter"
        elif any(_length(one) + beside > LONGEST_WORD for one in self._words(word)):
            yield path, f"is longer than {LONGEST_WORD} bytes, and no program can receive it"

    def _of_variable(self, path: str, name: str, word: Word) -> Iterator[tuple[str, str]]:
        if name.startswith(RESERVED_PREFIXES):
            yield path, f"variables that begin with {', '.join(RESERVED_PREFIXES)} are reserved"
        if isinstance(word, ParameterRef) and word.parameter in self._job.parameters:
            parameter = self._job.parameters[word.parameter]
            if word.separator is None and len(self._values(parameter)) != 1:
                yield f"{path}.separator", "is missing: a variable has one value"

    def _lacks_program(self, command: Sequence[Word]) -> bool:
        return [one for word in command[:1] for one in self._words(word)] in ([], [""])

    def _size(self, word: Word) -> int:
        """Return the least number of characters of *word*, without writing it."""
        if isinstance(word, str):
            return len(word) + 1
        parameter = self._job.parameters.get(word.parameter)
        if parameter is None or secret_of(parameter) is not None:
            return len(word.prefix) + 1
        count, size = self._sizes(word.parameter, parameter)
        if word.separator is None:
            return size + count * (len(word.prefix) + 1)
        return size + max(count - 1, 0) * len(word.separator) + len(word.prefix) + 1

    def _sizes(self, name: str, parameter: Parameter) -> tuple[int, int]:
        """Return how many values the parameter has, and their characters."""
        if name not in self._counted:
            values = self._values(parameter)
            self._counted[name] = len(values), sum(map(len, values))
        return self._counted[name]

    def _words(self, word: Word) -> list[str]:
        if isinstance(word, str):
            return [escape(word)]
        parameter = self._job.parameters.get(word.parameter)
        if parameter is None:
            return []
        if secret_of(parameter) is not None:
            return [escape(word.prefix) + reference(_variable_of(word.parameter))]
        values = self._values(parameter)
        if word.separator is not None:
            values = (word.separator.join(values),)
        return [escape(word.prefix + value) for value in values]

    def _values(self, parameter: Parameter) -> tuple[str, ...]:
        match parameter:
            case SecretParameter():
                return ("",)
            case FileParameter() | DirectoryParameter():
                names = [parse_path(path).basename for path in parameter.paths]
                return tuple(place_of(name, self._working_directory) for name in names)
            case ArtefactsParameter():
                return (place_of(parameter.job, self._working_directory),)
            case _:
                return parameter.words()

    def _is_secret(self, word: ParameterRef) -> bool:
        parameter = self._job.parameters.get(word.parameter)
        return parameter is not None and secret_of(parameter) is not None

    def _secrets_within_text(self, invocation: Invocation) -> set[str]:
        variables = invocation.environment.values()
        prefixed = [w for w in variables if isinstance(w, ParameterRef) and w.prefix]
        references = [w for w in invocation.command if isinstance(w, ParameterRef)]
        return {w.parameter for w in (*prefixed, *references) if self._is_secret(w)}


def _length(written: str) -> int:
    """Return how many bytes the program receives for what is written."""
    return len(written.encode()) - written.count("$$")


def _variable_of(parameter: str) -> str:
    # Reversible: parameter names may have hyphens, and two must not share a variable.
    return "FUMAROLE_SECRET_" + parameter.replace("_", "__").replace("-", "_H")


def _secret_name(job: Job) -> str:
    return companion_name(job.id, _COMPANION)


def _secret_problems(job: Job) -> Iterator[tuple[str, str]]:
    size = sum(len(value) for value in _secret_values(job).values())
    if size > MOST_SECRET_BYTES:
        yield "parameters", f"{size} bytes of secrets are more than {MOST_SECRET_BYTES}"


def _secret_values(job: Job) -> dict[str, bytes]:
    return {name: _secret_text(job.parameters[name]).encode() for name in job.secrets()}


def _secret(job: Job) -> Companion:
    values = _secret_values(job).items()
    data = {name: base64.b64encode(value).decode() for name, value in values}
    return Companion(
        kind="Secret",
        name=_secret_name(job),
        manifest={"type": "Opaque", "data": data},
        # The pods cannot start without it.
        when="before",
    )


def _secret_text(parameter: Parameter) -> str:
    secret = secret_of(parameter) or ""
    return f"{parameter.words()[0]}/{secret}" if isinstance(parameter, LicenceParameter) else secret
