# SPDX-License-Identifier: Apache-2.0
"""The arguments of later kernels: shell code that runs after everything else in GRUB's defaults.

A shell evaluates /etc/default/grub, so that a shell edits its settings: harpctl parses and rewrites none of
them. Debian's grub-mkconfig then evaluates /etc/default/grub.d/*.cfg, where a file of our own sorts last;
elsewhere the code stands at the end of /etc/default/grub, between two marks.

The code is harp_args.sh.in; its rules are those of cmdline.py. No line of it looks like a setting to grubby's
edit (a line that begins with GRUB_CMDLINE_LINUX) or to the vendor's (one that ends in a double quote, too).
"""

from __future__ import annotations

import re
from importlib import resources

from harpctl.facts.boot_loader import HARP_DROPIN
from harpctl.facts.model import Boot
from harpctl.facts.sources import DEFAULTS
from harpctl.kargs.cmdline import HugepageArgs, size_argument
from harpctl.units import GIB, MIB

BEGIN = "# >>> hugepages of HARP: written by harpctl, removed by harpctl rollback\n"
END = "# <<< hugepages of HARP\n"
_BLOCK = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)
_PATTERNS = {GIB: "1[gG]*|1024[mM]*|1048576[kK]*|1073741824", 2 * MIB: "2[mM]*|2048[kK]*|2097152"}


def shell_code(wanted: HugepageArgs) -> str:
    """Return the shell code, which a second run finds as the first one wrote it."""
    text = (resources.files("harpctl.kargs") / "harp_args.sh.in").read_text("utf-8")
    text = text.replace("@ARGS@", str(wanted)).replace("@SIZE@", _PATTERNS[wanted.page_size])
    text = text.replace("@OURS@", size_argument(wanted.page_size))
    return text.replace("@DEFAULT@", size_argument(wanted.kernel_default))


def defaults_path(boot: Boot) -> str:
    """Return the file that holds the code: Debian's menu is /boot/grub/grub.cfg, others' /boot/grub2."""
    return HARP_DROPIN if "/grub/" in boot.config else DEFAULTS


def with_code(text: str, wanted: HugepageArgs) -> str:
    """Return a file whose last part is the code, in the place of an earlier one."""
    rest = _BLOCK.sub("", text)
    return rest + ("" if not rest or rest.endswith("\n") else "\n") + shell_code(wanted)
