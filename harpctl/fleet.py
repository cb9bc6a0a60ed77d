# SPDX-License-Identifier: Apache-2.0
"""The same command on many hosts over ssh, in parallel, and one table of the results.

`over_hosts` adds the option -H to a command. With it nothing runs here: each host runs its own harpctl with
the same options and --json, or, where this harpctl came out of the self-contained file, that file streamed to
its bash. ssh is the system's, with the operator's own configuration, keys and known hosts; it asks nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import os
import re
import shlex
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Annotated, cast, overload

import msgspec
import typer
from rich.table import Table
from rich.text import Text

from harpctl.console import ConsoleProgress, NoProgress, print_json, print_table, printable
from harpctl.errors import ExitCode, HarpError
from harpctl.hints import Words, complete, given_options
from harpctl.records import cleaned, decode

SSH = ("ssh", "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o", "ServerAliveInterval=15")
SSH_FAILED = 255  # what ssh itself returns
NOT_FOUND = 127  # what a shell returns for a program that it does not find
PARALLEL_MAX = 32
TIMEOUT_S = 600.0
PROGRAM = "harpctl"
DIST_VARIABLE = "HARPCTL_FILE"  # set by the self-contained file: its own path
HOST = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9_.-]*@)?[A-Za-z0-9_:][A-Za-z0-9_.:%-]*")
SLOTS = re.compile(r"[^:]+:\d+")  # host:8, as mpirun's -H takes it
JSON = "--json"
OWN_OPTIONS = ("--hosts", "--remote", "--remote-timeout", JSON)
OUTPUT_BYTES_MAX = 16 << 20  # of a host; statistics of many connections are the largest
PART_BYTES = 64 << 10
ERROR_BYTES_MAX = 64 << 10
LOOK = "Is the program there this harpctl? Look: ssh {} harpctl --version"
FRAME = "│╭╰╮╯─ "  # of typer's error boxes
SSH_REMEDIES = (
    ("Host key verification failed", "Check the host's key and add it to known_hosts: ssh {host}"),
    ("Permission denied", "Let ssh in without a password: ssh-copy-id {host}"),
    ("Could not resolve", "Correct the name, or add it to /etc/hosts or ~/.ssh/config."),
    ("refused", "Start sshd there, or set its port in ~/.ssh/config."),
    ("timed out", "See whether the host is up and its port 22 open: ssh -v {host}"),
)


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The result of the command on one host; a list of these is what --json prints."""

    host: str
    result: str  # "ok", "failed", "differs", "unreachable", "no harpctl", "no answer", "timed out"
    code: int  # the command's exit code there, or one that stands for the result
    detail: str = ""
    remedy: str = ""
    seconds: float = 0.0
    answer: object = None  # the JSON that the command printed there


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """What the table shows of the JSON that a command prints."""

    summary: str = ""
    message: str = ""
    error: str = ""
    hint: str = ""


class Remote(msgspec.Struct, frozen=True, kw_only=True):
    """How harpctl is started on a host: a program with its first words, or a file streamed to bash."""

    program: tuple[str, ...] = (PROGRAM,)
    file: str = ""

    def command(self, words: Sequence[str]) -> str:
        """Return the one line that the host's login shell gets, every word quoted."""
        return shlex.join([*(("bash", "-s", "--") if self.file else self.program), *words])


def find_remote(given: str | None) -> Remote:
    """Return how harpctl is started on hosts: by --remote, else this self-contained file, or PATH."""
    if given is not None:
        words = tuple(shlex.split(given))
        if not words:
            raise HarpError("--remote names no program.", "Give its path there.", ExitCode.USAGE)
        return Remote(program=words)
    file = os.environ.get(DIST_VARIABLE, "")
    return Remote(file=file) if file and Path(file).is_file() else Remote()


Compare = Callable[[Sequence[Answer]], list[Answer]]

# ---- hosts ----


def parse_hosts(given: Sequence[str]) -> tuple[str, ...]:
    """Read the values of -H: comma lists of [USER@]HOST, or @FILE with one a line; each host once."""
    hosts: dict[str, None] = {}
    for word in (word.strip() for value in given for word in value.split(",")):
        if word.startswith("@"):
            hosts.update(dict.fromkeys(_read_hosts(word[1:])))
        elif word:
            hosts[_checked(word)] = None
    if not hosts:
        raise HarpError("-H names no host.", "Give it as -H host1,host2 or -H @FILE.", ExitCode.USAGE)
    return tuple(hosts)


def _read_hosts(name: str) -> list[str]:
    """Read a host file: the first word of each line, as in MPI's; # begins a comment."""
    try:
        text = Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise HarpError(
            f"-H @{name}: the file cannot be read ({reason}).",
            "Give a file with one host a line.",
            ExitCode.USAGE,
        ) from None
    lines = (line.split("#")[0].split() for line in text.splitlines())
    return [_checked(words[0]) for words in lines if words]


def _checked(host: str) -> str:
    if SLOTS.fullmatch(host):
        raise HarpError(
            f"-H {host}: neither slots nor ports go with a host.",
            f"Write {host.partition(':')[0]}; a port goes into ~/.ssh/config.",
            ExitCode.USAGE,
        )
    if not HOST.fullmatch(host):
        raise HarpError(f"-H {host}: this is no host name.", "Write it as [USER@]HOST.", ExitCode.USAGE)
    return host


# ---- running ----


def collect_answers(
    words: Sequence[str], hosts: Sequence[str], remote: Remote, timeout_s: float = TIMEOUT_S
) -> list[Answer]:
    """Run `harpctl WORDS...` on all hosts, up to 32 at once; return the answers in the order of the hosts.

    A host that fails or does not answer in time is an answer too. Raises HarpError without a local ssh. When
    interrupted, the ssh processes are ended; what was begun on the hosts may still finish there.
    """
    return asyncio.run(_collect_answers(words, hosts, remote, timeout_s))


async def _collect_answers(
    words: Sequence[str], hosts: Sequence[str], remote: Remote, timeout_s: float
) -> list[Answer]:
    turns = asyncio.Semaphore(PARALLEL_MAX)

    async def one(host: str) -> Answer:
        async with turns:
            return await _run_on_host(host, remote, words, timeout_s)

    return list(await asyncio.gather(*(one(host) for host in hosts)))


async def _run_on_host(host: str, remote: Remote, words: Sequence[str], timeout_s: float) -> Answer:
    begin = time.monotonic()
    with contextlib.ExitStack() as stack:
        stdin: int | IO[bytes] = asyncio.subprocess.DEVNULL
        if remote.file:
            stdin = stack.enter_context(Path(remote.file).open("rb"))
        try:
            process = await asyncio.create_subprocess_exec(
                *SSH,
                "--",
                host,
                remote.command(words),
                stdin=stdin,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
        except FileNotFoundError:
            raise HarpError(
                "ssh is not installed here.", "Install it: openssh-client.", ExitCode.MISSING
            ) from None
        out, err, code = await _finish(process, timeout_s)
    seconds = round(time.monotonic() - begin, 3)
    if code is None:
        return Answer(
            host=host,
            result="timed out",
            code=int(ExitCode.FAILED),
            detail=f"it did not end within {timeout_s:g} s",
            remedy="See what it does there, or allow more: --remote-timeout SECONDS",
            seconds=seconds,
        )
    return msgspec.structs.replace(answer_of(host, code, out, err), seconds=seconds)


async def _finish(process: asyncio.subprocess.Process, timeout_s: float) -> tuple[str, str, int | None]:
    """Wait for the end; return both outputs and the exit code, None when it was ended for taking too long."""
    if process.stdout is None or process.stderr is None:
        raise AssertionError(process)
    reading = (_read(process.stdout, OUTPUT_BYTES_MAX), _read(process.stderr, ERROR_BYTES_MAX))
    try:
        out, err = await asyncio.wait_for(asyncio.gather(*reading), timeout_s)
        await asyncio.wait_for(process.wait(), timeout_s)
    except asyncio.TimeoutError:
        return "", "", None
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    return out.decode(errors="replace"), err.decode(errors="replace"), process.returncode


async def _read(stream: asyncio.StreamReader, bytes_max: int) -> bytes:
    """Read all that a host writes, and return the beginning of it."""
    kept = bytearray()
    while part := await stream.read(PART_BYTES):
        kept += part[: bytes_max - len(kept)]
    return bytes(kept)


def answer_of(host: str, code: int, out: str, err: str) -> Answer:
    """Return the answer for what ssh returned."""
    message, hint = map(printable, _error(err))
    if text := find_json(out):
        return _answer_of_json(host, code, text, message)
    if code < 0:
        detail = f"ssh was ended by signal {-code}"
        return Answer(host=host, result="failed", code=int(ExitCode.FAILED), detail=detail)
    if code == SSH_FAILED:
        remedy = next((text for sign, text in SSH_REMEDIES if sign in err), "Try it by hand: ssh {host}")
        missing = int(ExitCode.MISSING)
        reason, remedy = message or "ssh failed", remedy.format(host=host)
        return Answer(host=host, result="unreachable", code=missing, detail=reason, remedy=remedy)
    if code == NOT_FOUND:
        remedy = "Install harpctl there, name it with --remote PATH, or run this from harp_setup.sh."
        return Answer(
            host=host, result="no harpctl", code=int(ExitCode.MISSING), detail=message, remedy=remedy
        )
    if code == 0:
        first = (out.strip().splitlines() or ["nothing"])[0][:80]
        detail = f"it answered without JSON: {printable(first)}"
        return Answer(
            host=host, result="no answer", code=int(ExitCode.FAILED), detail=detail, remedy=LOOK.format(host)
        )
    detail = message or f"exit code {code}"
    return Answer(host=host, result="failed", code=code, detail=detail, remedy=hint)


def _answer_of_json(host: str, code: int, text: str, message: str) -> Answer:
    try:
        said = decode(text, Said, "its answer")
    except HarpError as error:
        wrong, remedy = int(ExitCode.WRONG_DATA), LOOK.format(host)
        return Answer(host=host, result="no answer", code=wrong, detail=error.message, remedy=remedy)
    detail = said.summary or said.message or said.error or message
    result = "ok" if code == 0 else "failed"
    answer = cleaned(msgspec.json.decode(text))
    return Answer(host=host, result=result, code=code, detail=detail, remedy=said.hint, answer=answer)


def find_json(text: str) -> str:
    """Return the JSON object or list that ends an output, after what a login shell wrote; "" without.

    Lines inside of it are indented, so that it begins with the last line that begins with a bracket.
    """
    text = f"\n{text.rstrip()}"
    at = max(text.rfind("\n{"), text.rfind("\n["))
    return text[at + 1 :] if at >= 0 and text[-1] == {"{": "}", "[": "]"}[text[at + 1]] else ""


def _error(err: str) -> tuple[str, str]:
    """Return message and hint as harpctl prints them, else the last line that is not empty."""
    lines = [line.strip(FRAME) for line in err.splitlines()]
    for at, line in enumerate(lines):
        if line.startswith("harpctl: "):
            hints = [hint for hint in lines[at + 1 :] if hint]
            return line.removeprefix("harpctl: "), " ".join(hints)
    reason = [line for line in lines if line]
    return (reason[-1] if reason else ""), ""


# ---- the option of commands ----


def show(answers: Sequence[Answer]) -> None:
    """Print the table: a line for each host, and below it what to do."""
    table = Table(box=None, pad_edge=False, show_edge=False)
    for head in ("host", "result", "detail"):
        table.add_column(head, overflow="fold")
    for answer in answers:
        result = Text(answer.result, style="green" if answer.result == "ok" else "red")
        table.add_row(answer.host, result, Text(answer.detail))
        if answer.remedy:
            table.add_row("", "", Text(answer.remedy))
    print_table(table)


def run_on_hosts(
    words: Sequence[str],
    hosts: Sequence[str],
    remote: Remote,
    timeout_s: float,
    compare: Compare | None = None,
    context: typer.Context | None = None,
    *,
    as_json: bool,
) -> int:
    """Run a command on hosts, print the table or the JSON, and return the worst exit code."""
    progress = NoProgress() if as_json else ConsoleProgress()
    with progress.working(f"{words[0]} on {len(hosts)} host{'s' * (len(hosts) != 1)}"):
        answers = collect_answers([words[0], JSON, *words[1:]], hosts, remote, timeout_s)
    answers = [_placed(answer, context) for answer in (compare(answers) if compare else answers)]
    if as_json:
        print_json(answers)
    else:
        show(answers)
    return max(answer.code for answer in answers)


def _placed(answer: Answer, context: typer.Context | None) -> Answer:
    """Return the answer with its remedy adapted to act on that host from here."""
    host: Words = ("--hosts", ["-H", answer.host])
    return msgspec.structs.replace(answer, remedy=complete(answer.remedy, context, [host]))


def given_words(context: typer.Context) -> list[str]:
    """Return the command of a context as words again: its name, and what was given to it."""
    words, arguments = [str(context.command.name)], []
    for name, its in given_options(context):
        if not name:
            arguments += its
        elif name not in OWN_OPTIONS:
            words += its
    return [*words, "--", *arguments] if arguments else words


HOSTS_HELP = "Run it on these hosts over ssh: host1,user@host2 or @FILE; paths are those of the hosts."
OPTIONS = (
    (
        "hosts",
        Annotated[list[str] | None, typer.Option("-H", "--hosts", metavar="HOSTS", help=HOSTS_HELP)],
        None,
    ),
    (
        "remote",
        Annotated[str | None, typer.Option("--remote", metavar="PATH", help="The harpctl of those hosts.")],
        None,
    ),
    (
        "remote_timeout",
        Annotated[
            float, typer.Option("--remote-timeout", metavar="S", help="Time limit per host in seconds.")
        ],
        TIMEOUT_S,
    ),
)


@overload
def over_hosts(command: Callable[..., None]) -> Callable[..., None]: ...


@overload
def over_hosts(*, compare: Compare) -> Callable[[Callable[..., None]], Callable[..., None]]: ...


def over_hosts(command: Callable[..., None] | None = None, compare: Compare | None = None) -> object:
    """Add the options -H, --remote and --remote-timeout to a command. It must have --json, with one value.

    `compare` looks at the answers of all hosts together, and returns what they are then.
    """
    if command is None:
        return functools.partial(_over_hosts, compare=compare)
    return _over_hosts(command, compare)


def _over_hosts(command: Callable[..., None], compare: Compare | None) -> Callable[..., None]:
    @functools.wraps(command)
    def wrapper(*, context: typer.Context, **values: object) -> None:
        hosts = cast("list[str] | None", values.pop("hosts"))
        remote = find_remote(cast("str | None", values.pop("remote")))
        timeout_s = cast("float", values.pop("remote_timeout"))
        if not hosts:
            command(**values)
            return
        words = given_words(context)
        as_json = any(
            context.params[str(param.name)] for param in context.command.params if JSON in param.opts
        )
        code = run_on_hosts(words, parse_hosts(hosts), remote, timeout_s, compare, context, as_json=as_json)
        if code:
            raise typer.Exit(code)

    signature = inspect.signature(command, eval_str=True)
    keyword = inspect.Parameter.KEYWORD_ONLY
    added = [
        inspect.Parameter(name, keyword, default=default, annotation=annotation)
        for name, annotation, default in OPTIONS
    ]
    context = inspect.Parameter("context", keyword, annotation=typer.Context)
    parameters = [*signature.parameters.values(), *added, context]
    wrapper.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    wrapper.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return wrapper
