# SPDX-License-Identifier: Apache-2.0
"""The same command on many hosts over ssh, in parallel, and one table of the results.

`over_hosts` adds the option -H to a command. With it nothing runs here: each host runs its own harpctl with
the same options and --json, or, where this harpctl came out of the self-contained file, that file streamed to
its bash. A command that can change a host, which is one that has --dry-run, runs on the first host alone, and
on the others if that went well; on a terminal its plan for all hosts is shown before, and one question asked.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import os
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, cast

import click
import msgspec
from rich.text import Text

from harpctl.command_line import hosts_option, option, remote_option
from harpctl.console import (
    LAYOUT,
    ConsoleProgress,
    NoProgress,
    ask_for_yes,
    escape_unprintable,
    make_table,
    print_json,
    print_lines,
    print_table,
)
from harpctl.errors import EXIT_CHANGES, ExitCode, HarpError
from harpctl.hints import Words, complete_hint, given_options
from harpctl.records import decode_json, escape_texts
from harpctl.ssh import SSH_FAILED, parse_hosts, remedy_of, run_command

NOT_FOUND = 127  # what a shell returns for a program that it does not find
AT_ONCE, AT_ONCE_MAX = 32, 512
TIMEOUT_S = 600.0
PROGRAM = "harpctl"
DIST_VARIABLE = "HARPCTL_FILE"  # set by the self-contained file: its own path
JSON, YES, DRY_RUN, EXIT_CODE = "--json", "--yes", "--dry-run", "--exit-code"
OWN_OPTIONS = ("--hosts", "--remote", "--remote-timeout", "--at-once", YES, DRY_RUN, JSON, EXIT_CODE)
LOOK = "Is the program there this harpctl? Look: ssh {} harpctl --version"


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The result of the command on one host; a list of these is what --json prints."""

    host: str
    result: str  # "ok", "failed", "differs", "unreachable", "no harpctl", "no answer", "timed out", "not begun"
    code: int  # the command's exit code there, or one that stands for the result
    detail: str = ""
    remedy: str = ""
    seconds: float = 0.0
    answer: object = None  # the JSON that the command printed there


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a command's JSON that the table shows."""

    summary: str = ""
    message: str = ""
    error: str = ""
    hint: str = ""


class Remote(msgspec.Struct, frozen=True, kw_only=True):
    """The start of harpctl on a host: a program with its first words, or a file streamed to bash."""

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

# ---- running ----


def collect_answers(
    words: Sequence[str],
    hosts: Sequence[str],
    remote: Remote,
    timeout_s: float = TIMEOUT_S,
    at_once: int = AT_ONCE,
) -> list[Answer]:
    """Run `harpctl WORDS...` on all hosts, so many at once; return the answers in the order of the hosts.

    A host that fails or does not answer in time is an answer too. Raises HarpError without a local ssh. When
    interrupted, the ssh processes are ended; what was begun on the hosts may still finish there.
    """
    return asyncio.run(_collect_answers(words, hosts, remote, timeout_s, at_once))


async def _collect_answers(
    words: Sequence[str], hosts: Sequence[str], remote: Remote, timeout_s: float, at_once: int
) -> list[Answer]:
    turns = asyncio.Semaphore(at_once)

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
        done = await run_command(host, remote.command(words), timeout_s, stdin)
    seconds = round(time.monotonic() - begin, 3)
    if done.code is None:
        detail = f"it did not end within {timeout_s:g} s"
        remedy = "See what it does there, or allow more: --remote-timeout SECONDS"
        late = _failed_answer(host, "timed out", ExitCode.FAILED, detail, remedy)
        return msgspec.structs.replace(late, seconds=seconds)
    return msgspec.structs.replace(answer_of(host, done.code, done.out, done.err), seconds=seconds)


def _failed_answer(host: str, result: str, code: ExitCode, detail: str, remedy: str = "") -> Answer:
    return Answer(host=host, result=result, code=int(code), detail=detail, remedy=remedy)


def answer_of(host: str, code: int, out: str, err: str) -> Answer:
    """Return the answer for what ssh returned."""
    message, hint = map(escape_unprintable, _read_error(err))
    if text := find_json(out):
        return _answer_of_json(host, code, text, message)
    if code < 0:
        return _failed_answer(host, "failed", ExitCode.FAILED, f"ssh was ended by signal {-code}")
    if code == SSH_FAILED:
        return _failed_answer(host, "unreachable", ExitCode.MISSING, message or "ssh failed", remedy_of(host, err))
    if code == NOT_FOUND:
        remedy = "Install harpctl there, name it with --remote PATH, or run this from harp_setup.sh."
        return _failed_answer(host, "no harpctl", ExitCode.MISSING, message, remedy)
    if code == 0:
        first = (out.strip().splitlines() or ["nothing"])[0][:80]
        detail = f"it answered without JSON: {escape_unprintable(first)}"
        return _failed_answer(host, "no answer", ExitCode.FAILED, detail, LOOK.format(host))
    detail = message or f"exit code {code}"
    return Answer(host=host, result="failed", code=code, detail=detail, remedy=hint)


def _answer_of_json(host: str, code: int, text: str, message: str) -> Answer:
    try:
        said = decode_json(text, Said, "its answer")
    except HarpError as error:
        return _failed_answer(host, "no answer", ExitCode.WRONG_DATA, error.message, LOOK.format(host))
    detail = said.summary or said.message or said.error or message
    result = "ok" if code == 0 else "failed"
    answer = escape_texts(msgspec.json.decode(text), LAYOUT)
    return Answer(host=host, result=result, code=code, detail=detail, remedy=said.hint, answer=answer)


def find_json(text: str) -> str:
    """Return the JSON object or list that ends an output, after what a login shell wrote; "" without.

    Lines inside of it are indented, so that it begins with the last line that begins with a bracket.
    """
    text = f"\n{text.rstrip()}"
    at = max(text.rfind("\n{"), text.rfind("\n["))
    return text[at + 1 :] if at >= 0 and text[-1] == {"{": "}", "[": "]"}[text[at + 1]] else ""


def _read_error(err: str) -> tuple[str, str]:
    """Return message and hint as harpctl prints them, else the last line that is not empty."""
    lines = [line.strip() for line in err.splitlines()]
    for at, line in enumerate(lines):
        if line.startswith("harpctl: "):
            hints = [hint for hint in lines[at + 1 :] if hint]
            return line.removeprefix("harpctl: "), " ".join(hints)
    reason = [line for line in lines if line]
    return (reason[-1] if reason else ""), ""


# ---- the option of commands ----


def show_answers(answers: Sequence[Answer]) -> None:
    """Print the table: a line for each host, and below it what to do."""
    table = make_table("host", "result", "detail", folded={"host", "result", "detail"})
    for answer in answers:
        result = Text(answer.result, style="green" if answer.result == "ok" else "red")
        table.add_row(answer.host, result, Text(answer.detail))
        if answer.remedy:
            table.add_row("", "", Text(answer.remedy))
    print_table(table)


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """The task of a command on hosts."""

    hosts: tuple[str, ...]
    remote: Remote
    timeout_s: float = TIMEOUT_S
    at_once: int = AT_ONCE
    changes: bool = False  # it changes hosts: the first one is tried alone
    asks: bool = False  # its plan is shown first, and a question asked
    tells_changes: bool = False  # EXIT_CHANGES when nothing failed and a host has something to do


def run_on_hosts(
    words: Sequence[str],
    run: Run,
    compare: Compare | None = None,
    context: click.Context | None = None,
    *,
    as_json: bool,
) -> int:
    """Run a command on hosts, print the table or the JSON, and return the worst exit code."""
    progress = NoProgress() if as_json else ConsoleProgress()
    count = f"{len(run.hosts)} host{'s' * (len(run.hosts) != 1)}"

    def ask(hosts: Sequence[str], more: Sequence[str], title: str) -> list[Answer]:
        with progress.working(title):
            line = [words[0], JSON, *more, *words[1:]]
            answers = collect_answers(line, hosts, run.remote, run.timeout_s, run.at_once)
        return [_adapt_remedy(answer, context) for answer in answers]

    if run.asks:
        planned = ask(run.hosts, [DRY_RUN], f"the plan of {words[0]} on {count}")
        if any(answer.code for answer in planned):
            show_answers(planned)
            return max(answer.code for answer in planned)
        if not show_plans(planned):
            return 0
        ask_for_yes(f"Apply this on {count}?")
    first = run.hosts[:1] if run.changes and len(run.hosts) > 1 else ()
    answers = ask(first, [], f"{words[0]} on {first[0]}, the first host") if first else []
    others = run.hosts[len(first) :]
    if any(answer.code for answer in answers):
        answers += [_not_begun(host, answers[0]) for host in others]
    else:
        answers += ask(others, [], f"{words[0]} on {len(others)} others" if first else f"{words[0]} on {count}")
    answers = compare(answers) if compare else answers
    if as_json:
        print_json(answers)
    elif DRY_RUN in words and not any(answer.code for answer in answers):
        show_plans(answers)
    else:
        show_answers(answers)
    changes = run.tells_changes and any(_has_changes(answer) for answer in answers)
    return max(answer.code for answer in answers) or (EXIT_CHANGES if changes else 0)


def _has_changes(answer: Answer) -> bool:
    return isinstance(answer.answer, dict) and answer.answer.get("changed") is True


def _not_begun(host: str, first: Answer) -> Answer:
    detail = f"nothing was done here, as {first.host}, the first host, failed"
    return _failed_answer(host, "not begun", ExitCode.FAILED, detail)


class _Reverted(msgspec.Struct, frozen=True, kw_only=True):
    actions: tuple[str, ...] = ()


class _Planned(msgspec.Struct, frozen=True, kw_only=True):
    """The plan in the JSON of a dry run: a text, or what a rollback would do."""

    plan: str = ""
    notes: tuple[str, ...] = ()
    reverted: tuple[_Reverted, ...] = ()

    def text(self) -> str:
        lines = [action for one in self.reverted for action in one.actions]
        return "\n".join([self.plan.rstrip(), *lines, *(f"Note: {note}" for note in self.notes)]).strip()


def show_plans(answers: Sequence[Answer]) -> bool:
    """Print what each host would do, equal plans once; return whether anything is to be done."""
    plans: dict[str, list[str]] = {}
    for answer in answers:
        data = msgspec.json.encode(answer.answer)
        plan = decode_json(data, _Planned, f"The plan of {answer.host}", LOOK.format(answer.host), LAYOUT)
        text = "" if isinstance(answer.answer, dict) and answer.answer.get("changed") is False else plan.text()
        plans.setdefault(text, []).append(answer.host)
    for text, hosts in plans.items():
        print_lines(f"{', '.join(hosts)}:\n{text.rstrip() or 'Nothing to do.'}\n")
    return any(plans)


def _adapt_remedy(answer: Answer, context: click.Context | None) -> Answer:
    """Return the answer with its remedy adapted to act on that host from here."""
    host: Words = ("--hosts", ["-H", answer.host])
    return msgspec.structs.replace(answer, remedy=complete_hint(answer.remedy, context, [host]))


def given_words(context: click.Context) -> list[str]:
    """Return the command of a context as words again: its name, and what was given to it."""
    words, arguments = [str(context.command.name)], []
    for name, given in given_options(context):
        if not name:
            arguments += given
        elif name not in OWN_OPTIONS:
            words += given
    return [*words, "--", *arguments] if arguments else words


OPTIONS = (
    hosts_option,
    option(
        "--at-once",
        metavar="N",
        type=click.IntRange(1, AT_ONCE_MAX),
        default=AT_ONCE,
        help="Run on so many hosts at a time.",
    ),
    remote_option,
    option("--remote-timeout", metavar="S", default=TIMEOUT_S, help="Time limit per host in seconds."),
)


def is_terminal() -> bool:
    """Return whether somebody is there to be asked."""
    return sys.stdin.isatty()


def over_hosts(command: click.Command, compare: Compare | None = None) -> click.Command:
    """Return a command with -H, --at-once, --remote and --remote-timeout; it must have --json.

    `compare` looks at the answers of all hosts together, and returns what they are then.
    """
    here = cast("Callable[..., None]", command.callback)

    def on_hosts(
        *, hosts: tuple[str, ...], at_once: int, remote: str | None, remote_timeout: float, **values: object
    ) -> None:
        if not hosts:
            here(**values)
            return
        context = click.get_current_context()
        by_option = {name: context.params[str(one.name)] for one in context.command.params for name in one.opts}
        as_json = bool(by_option[JSON])
        is_real = by_option.get(DRY_RUN) is False and not by_option.get("--list")
        run = Run(
            hosts=parse_hosts(hosts),
            remote=find_remote(remote),
            timeout_s=remote_timeout,
            at_once=at_once,
            changes=is_real or bool(by_option.get("--fix")),
            asks=is_real and not as_json and not by_option[YES] and is_terminal(),
            tells_changes=bool(by_option.get(DRY_RUN) and by_option.get(EXIT_CODE)),
        )
        words = given_words(context)
        if by_option.get(DRY_RUN):
            words.insert(1, DRY_RUN)
        code = run_on_hosts(words, run, compare, context, as_json=as_json)
        if code:
            raise click.exceptions.Exit(code)

    with_hosts = copy.copy(command)
    with_hosts.params, with_hosts.callback = [*command.params], on_hosts
    for add in OPTIONS:
        add(with_hosts)
    return with_hosts
