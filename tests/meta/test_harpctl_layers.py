# SPDX-License-Identifier: Apache-2.0
"""harpctl and the lab import only what docs/explanation/harpctl.md allows; only change/ changes a host."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.meta.test_docs import read_document, read_layers

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "harpctl"
LAB = "harplab"
# What everything may import.
COMMON = {
    "errors",
    "console",
    "records",
    "hints",
    "failures",
    "command_line",
    "build_info",
    "ip",
    "lab",
    "units",
}
TOP = {"", "__main__", "cli"}  # the program itself, which may import all
PLANNERS = ("kargs.plan", "network.plan", "setup.plan", "plugin.switch", "doctor.examine")
DOERS = ("change.apply", "change.executor", "change.rollback", "change.reverter")

# Who does what Host is there for otherwise, and why.
SPAWNS = {
    "host.runner": "the one runner of commands",
    "ssh": "ssh to other hosts",
    "network.guard": "the rollback timer, which outlives harpctl",
    "build_info": "the script that tells a checkout's version",
    "preflight.sessions": "ssh to hosts for as long as a preflight lasts",
    "doctor.machine": "children that may die of what they try",
}
OPENS = {
    "build_info": "the version that a package brings",
    "console": "the terminal that is asked",
    "bundle.allow": "the names that come with harpctl",
    "confs.table": "the table of settings that comes with harpctl",
    "doctor.archive": "the bundle, where the operator says",
    "kargs.defaults": "harpctl's own template",
    "network.speeds": "harpctl's own table",
    "setup.unit": "harpctl's own templates",
    "failures": "standard streams that were closed",
    "fleet": "our own file to be streamed",
    "network.metadata": "addresses of the web",
    "node.cluster": "the API server of the cluster",
    "preflight.sessions": "our own file to be streamed",
    "plugin.source": "the plugin that comes with harpctl, or that the operator names",
    "ssh": "the operator's host file",
    "trace.rings": "the memory of a process that holds its rings",
}
WRITES = {
    "boot": "sizes of interfaces, which every boot forgets anyway, so that they are not journalled",
    "trace.command": "the dump that the operator asks for",
    "network.guard_files": "notes in /run/harp, between harpctl and the rollback timer",
    "network.rollback_timer": "its sign of life there",
}
RUNS = {
    "preflight.agent": "harp-perf",
    "change.executor": "steps",
    "change.reverter": "their undoing",
    "network.guard": "systemd-run, for the rollback timer",
    "boot": "what every boot forgets anyway, so that it is not journalled",
}


def name_of(path: Path) -> str:
    """Return a module's name below harpctl, "facts.eni", or of the lab; a package's own is "facts"."""
    parts = path.relative_to(PACKAGE if path.is_relative_to(PACKAGE) else ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in sorted([*PACKAGE.rglob("*.py"), *(ROOT / LAB).rglob("*.py")])}
PACKAGES = {
    ".".join(parts[:end]) for parts in (name.split(".") for name in MODULES) for end in range(len(parts) + 1)
}
PRODUCT = [name for name in MODULES if name.split(".")[0] != LAB]


@cache
def parse_module(module: str) -> ast.Module:
    return ast.parse(MODULES[module].read_text(encoding="utf-8"))


@cache
def imports_of(module: str) -> frozenset[str]:
    """Return the modules of harpctl and of the lab that a module imports anywhere in it."""
    found = set()
    for node in ast.walk(parse_module(module)):
        if isinstance(node, ast.ImportFrom):
            base = node.module or ""
            names = [f"{base}.{alias.name}" for alias in node.names]
            found |= {name if name_below(name) in MODULES else base for name in names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return frozenset(name_below(name) for name in found if name.split(".")[0] in {"harpctl", LAB})


def name_below(name: str) -> str:
    """Return a module's name as MODULES has it."""
    return name.removeprefix("harpctl").lstrip(".")


def closure_of(module: str) -> set[str]:
    """Return all modules of harpctl that importing a module brings along."""
    found: set[str] = set()
    todo = [module]
    while todo:
        new = imports_of(todo.pop()) - found
        found |= new
        todo += new
    return found


def read_allowed() -> dict[str, set[str]]:
    """Read the list of docs/explanation/harpctl.md."""
    return read_layers(read_document(ROOT / "docs" / "explanation" / "harpctl.md"))


def prefixes_of(name: str) -> list[str]:
    """Return a module and the packages that hold it: "facts.eni" and "facts"."""
    parts = name.split(".")
    return [".".join(parts[:end]) for end in range(1, len(parts) + 1)] if name else [""]


def test_the_list_names_the_packages() -> None:
    packages = {name.split(".")[0] for name in MODULES} - TOP - COMMON
    assert set(read_allowed()) == packages
    named = {name for names in read_allowed().values() for name in names}
    assert sorted(named - PACKAGES) == []


def test_each_package_stands_below_those_that_import_it() -> None:
    order = list(read_allowed())
    upward = [
        f"{package} imports {name}"
        for place, (package, may) in enumerate(read_allowed().items())
        for name in may
        if name.split(".")[0] not in order[:place]
    ]
    assert not upward


@pytest.mark.parametrize("package", sorted({name.split(".")[0] for name in MODULES} - TOP))
def test_a_package_imports_what_the_table_allows(package: str) -> None:
    may = COMMON | {"", package} | read_allowed().get(package, set())  # "": the version
    wrong = [
        f"{module} imports {target}"
        for module in MODULES
        if module.split(".")[0] == package
        for target in imports_of(module)
        if not may & set(prefixes_of(target))
    ]
    assert not wrong


def test_what_the_table_allows_is_used() -> None:
    used = {
        package: {
            found
            for module in MODULES
            if module.split(".")[0] == package
            for target in imports_of(module)
            for found in prefixes_of(target)
        }
        for package in read_allowed()
    }
    assert {package: may - used[package] for package, may in read_allowed().items() if may - used[package]} == {}


def test_no_module_imports_itself_through_others() -> None:
    assert [module for module in MODULES if module in closure_of(module)] == []


def test_only_the_command_line_names_the_lab() -> None:
    """A host need not have it: its modules are imported by name, when they are asked for."""
    naming = {module for module in PRODUCT if LAB in MODULES[module].read_text(encoding="utf-8")}
    assert naming == {"cli", "lab"}
    assert not [module for module in PRODUCT for name in imports_of(module) if name.startswith(LAB)]


def test_what_is_imported_is_declared() -> None:
    """The lab's wheel asks for harpctl alone, so that both have its packages; some are optional."""
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    declared = set(re.findall(r'"([a-z0-9-]+)[>=<]', project.partition("\nportable = ")[0]))
    named = {"elftools": "pyelftools", "prometheus_client": "prometheus-client"}
    found = {
        name.split(".")[0]
        for module in MODULES
        for node in ast.walk(parse_module(module))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names])
    }
    strangers = found - sys.stdlib_module_names - {"harpctl", LAB}
    assert strangers >= {"click", "msgspec"}
    assert sorted(name for name in strangers if named.get(name, name) not in declared) == []


def test_facts_plan_nothing() -> None:
    reached = closure_of("facts.collect")
    assert reached >= {"facts.eni", "facts.grub_menu", "facts.plugin_files"}
    assert sorted(name for name in reached if name in PLANNERS or name.startswith("change")) == []


@pytest.mark.parametrize("planner", PLANNERS)
def test_planners_carry_nothing_out(planner: str) -> None:
    reached = closure_of(planner)
    assert "change.steps" in reached
    assert sorted(reached & set(DOERS)) == []


def planning_modules() -> set[str]:
    """Return the modules of planners: what planning a setup brings along, but for facts and steps."""
    packages = ("setup.", "kargs.", "network.")
    return {"setup.plan"} | {name for name in closure_of("setup.plan") if name.startswith(packages)}


def test_planners_touch_nothing_but_facts_and_options() -> None:
    machine = {"os", "pathlib", "shutil", "socket", "subprocess", "sys", "time"}
    found = {
        f"{module} imports {alias.name}"
        for module in planning_modules()
        for node in ast.walk(parse_module(module))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in ([ast.alias(node.module or "")] if isinstance(node, ast.ImportFrom) else node.names)
        if alias.name.split(".")[0] in machine
    }
    assert not found


def test_planners_read_no_host() -> None:
    assert {module for module in planning_modules() if "host.host" in imports_of(module)} == set()
    assert "network.runtime" in planning_modules()


# ---- access to the host ----


def writing_methods() -> set[str]:
    """Return the methods of Host that change the machine: those below the comment that begins them."""
    text = MODULES["host.host"].read_text(encoding="utf-8")
    below = text[text.index("# ---- writing: only change/ calls these") : text.index("\ndef ")]
    found = set(re.findall(r"    def ([a-z]\w*)\(", below))
    assert {"write_file", "remove", "rename", "lock"} <= found
    return found


def calls_in(module: str) -> Iterator[tuple[str, str]]:
    """Yield receiver and name of every call; the receiver is the last name before the dot, "" without one.

    Left out is what opens the null device.
    """
    for node in ast.walk(parse_module(module)):
        if not isinstance(node, ast.Call) or (node.args and ast.unparse(node.args[0]) == "os.devnull"):
            continue
        if isinstance(node.func, ast.Name):
            yield "", node.func.id
        elif isinstance(node.func, ast.Attribute):
            value = node.func.value
            names = {ast.Name: "id", ast.Attribute: "attr"}
            yield str(getattr(value, names.get(type(value), ""), "?")), node.func.attr


def users_of(*, of_host: bool, names: set[str]) -> set[str]:
    """Return the modules that call such a function, of a host or of anything else but facts.sources."""
    return {
        module
        for module in PRODUCT
        for receiver, name in calls_in(module)
        if name in names and receiver != "sources" and receiver.lower().endswith("host") == of_host
    }


def test_only_changes_write_to_a_host() -> None:
    found = users_of(of_host=True, names=writing_methods() | {"real", "resolved", "placed"})
    assert {name for name in found if not name.startswith(("change.", "host."))} == set(WRITES)


def test_only_changes_run_commands() -> None:
    assert users_of(of_host=True, names={"run"}) == set(RUNS)


def test_only_the_runner_starts_processes() -> None:
    spawning = {"fork", "forkpty", "posix_spawn", "posix_spawnp", "system", "popen", "Popen"}
    spawning |= {"create_subprocess_exec", "create_subprocess_shell", "execv", "execve", "execvp"}
    found = users_of(of_host=False, names=spawning)
    found |= {
        module
        for module in PRODUCT
        for node in ast.walk(parse_module(module))
        if isinstance(node, ast.Import) and "subprocess" in {alias.name for alias in node.names}
    }
    assert found == set(SPAWNS)


def test_files_are_opened_by_the_host_alone() -> None:
    opening = {"open", "read_text", "read_bytes", "write_text", "write_bytes", "urlopen"}
    found = users_of(of_host=False, names=opening)
    assert {name for name in found if not name.startswith("host.")} - TOP == set(OPENS)
