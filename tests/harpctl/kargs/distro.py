# SPDX-License-Identifier: Apache-2.0
"""A distribution's own commands, update-grub, grub2-mkconfig and grubby, acting on a directory tree.

grubby does what grubby-bls does to a line of arguments: a name to remove goes with all its values, an
argument to add replaces all of its name. The defaults are read by bash, as grub-mkconfig does.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from harpctl.change.steps import AnyStep, Group, Run, WriteFile
from harpctl.host.host import Host
from harpctl.host.runner import TIMEOUT_S, Completed

USAGE = "Usage: grubby [OPTION...]\n      --no-etc-grub-update\n"


class Distro:
    """A runner for one tree. `knows_flag` is a grubby since EL 8.3, which also writes /etc/default/grub."""

    runs = True

    def __init__(self, root: Path, *, knows_flag: bool = True) -> None:
        self.root = root
        self.knows_flag = knows_flag
        self.ran: list[str] = []

    def run(self, argv: Sequence[str], timeout_s: float = TIMEOUT_S) -> Completed:
        """Run one of the commands; others are not found."""
        del timeout_s
        if argv[0] == "grubby" and argv[1:] == ("--help",):
            return Completed(tuple(argv), 0, USAGE if self.knows_flag else "Usage: grubby [OPTION...]\n")
        if argv[0] in {"ip", "nmcli"}:
            return Completed(tuple(argv), 1)
        self.ran.append(" ".join(argv))
        if argv[0] in {"update-grub", "update-grub2"}:
            self._generate_config("/boot/grub/grub.cfg")
        elif argv[0] in {"grub2-mkconfig", "grub-mkconfig"} and argv[1] == "-o":
            self._generate_config(argv[2])
        elif argv[0] == "grubby":
            return Completed(tuple(argv), self._imitate_grubby(argv[1:]))
        else:
            return Completed(tuple(argv), 127, "", f"{argv[0]}: not found")
        return Completed(tuple(argv), 0)

    def _path_of(self, path: str) -> Path:
        return Host(self.root).real(path)

    def _read_defaults(self) -> tuple[str, str]:
        files = [
            self._path_of("/etc/default/grub"),
            *sorted((self.root / "etc/default/grub.d").glob("*.cfg")),
        ]
        script = "".join(f". '{file}'\n" for file in files if file.exists())
        script += 'printf "%s\\0%s" "$GRUB_CMDLINE_LINUX" "$GRUB_CMDLINE_LINUX_DEFAULT"'
        done = subprocess.run(["bash", "-c", script], capture_output=True, check=True, text=True, timeout=20)
        main, _end, extra = done.stdout.partition("\0")
        return main, extra

    def _generate_config(self, path: str) -> None:
        main, extra = self._read_defaults()
        config = self._path_of(path)
        lines = config.read_text().splitlines(keepends=True)
        for number, line in enumerate(lines):
            if match := re.match(
                r"(\s*linux\S*\s+\S+ root=\S+ ro )(recovery nomodeset dis_ucode_ldr|single)?", line
            ):
                tail = f"{match[2]} {main}" if match[2] else f" {main} {extra}"
                lines[number] = f"{match[1]}{tail}\n"
        config.write_text("".join(lines))

    def _imitate_grubby(self, argv: Sequence[str]) -> int:
        options = dict(word.split("=", 1) for word in argv if "=" in word)
        if "--no-etc-grub-update" in argv and not self.knows_flag:
            return 1
        assert options["--update-kernel"] == "ALL"
        remove, add = options.get("--remove-args", "").split(), options.get("--args", "").split()
        for env in {self._path_of("/boot/grub2/grubenv"), *self.root.glob("boot/efi/EFI/*/grubenv")}:
            if env.exists() and (match := re.search(r"^kernelopts=(.*)$", env.read_text(), re.MULTILINE)):
                text = env.read_text().rstrip("#")
                text = text.replace(match[0], f"kernelopts={update_args(match[1], remove, add)}")
                env.write_text(text.ljust(1024, "#"))
        for entry in self.root.glob("boot/loader/entries/*.conf"):
            text = entry.read_text()
            options_line = re.search(r"^options (.*)$", text, re.MULTILINE)
            if options_line and "$kernelopts" not in options_line[1]:
                new = f"options {update_args(options_line[1], remove, add)}"
                entry.write_text(text.replace(options_line[0], new))
        if self.knows_flag:
            self._update_etc(remove, add, touches_defaults="--no-etc-grub-update" not in argv)
        return 0

    def _update_etc(self, remove: list[str], add: list[str], *, touches_defaults: bool) -> None:
        cmdline = self.root / "etc/kernel/cmdline"
        if cmdline.exists():
            cmdline.write_text(update_args(cmdline.read_text(), remove, add) + "\n")
        if touches_defaults:
            defaults = self.root / "etc/default/grub"
            line = f'GRUB_CMDLINE_LINUX="{update_args(self._read_defaults()[0], remove, add)}"'
            defaults.write_text(re.sub(r"(?m)^GRUB_CMDLINE_LINUX=.*$", lambda _: line, defaults.read_text()))


def update_args(args: str, remove: Sequence[str], add: Sequence[str]) -> str:
    """Do to a line of arguments what grubby does."""
    words = args.split()
    for word in remove:
        if "=" in word:
            if word in words:
                words.remove(word)
        else:
            words = [old for old in words if old.split("=")[0] != word]
    for word in add:
        name = word.rsplit("=", 1)[0]
        words = [old for old in words if old != name and not old.startswith(f"{name}=")]
    return " ".join([*words, *add])


def carry_out(group: Group, host: Host) -> None:
    """Do the steps of a group, as change/ would."""
    for step in group.steps:
        apply_step(step, host)


def apply_step(step: AnyStep, host: Host) -> None:
    if isinstance(step, WriteFile):
        status = host.stat(host.resolve_links(step.path))
        host.real(step.path).parent.mkdir(exist_ok=True)
        host.write_file(step.path, step.data, status.st_mode & 0o7777 if status else 0o644)
    else:
        assert isinstance(step, Run)
        done = host.run(step.argv)
        assert done.code == 0, done
