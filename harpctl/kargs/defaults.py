# SPDX-License-Identifier: Apache-2.0
"""The arguments of later kernels: shell code that runs after everything else in GRUB's defaults.

A shell evaluates /etc/default/grub, so that a shell edits its settings: harpctl parses and rewrites none of
them. Debian's grub-mkconfig then evaluates /etc/default/grub.d/*.cfg, where a file of our own sorts last;
elsewhere the code stands at the end of /etc/default/grub, between two marks.

The code's rules are those of cmdline.py. No line of it looks like a setting to grubby's edit (a line that
begins with GRUB_CMDLINE_LINUX) or to the vendor's (a line of that name that ends in a double quote).
"""

from __future__ import annotations

import re

from harpctl.facts.boot_loader import HARP_DROPIN
from harpctl.facts.model import Boot
from harpctl.facts.sources import DEFAULTS
from harpctl.kargs.cmdline import HugepageArgs, spelling
from harpctl.units import GIB, MIB

BEGIN = "# >>> hugepages of HARP: written by harpctl, removed by harpctl rollback\n"
END = "# <<< hugepages of HARP\n"
_BLOCK = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)
_PATTERNS = {GIB: "1[gG]*|1024[mM]*|1048576[kK]*|1073741824", 2 * MIB: "2[mM]*|2048[kK]*|2097152"}

_CODE = """\
# Counts of this page size and other default sizes are replaced; pages of other sizes stay.
harp_args='@ARGS@'
harp_default=@DEFAULT@
harp_edit() {
    harp_kept= harp_row= harp_held=
    for harp_word; do
        case $harp_end$harp_quoted$harp_word in
            --) harp_end='-- ' ;;
            '-- '*|'" '*) ;;
            default[-_]hugepagesz=*)
                harp_kept=$harp_kept$harp_held harp_held= harp_row=${harp_word#*=}
                continue ;;
            hugepagesz=*)
                harp_kept=$harp_kept$harp_held harp_held= harp_size=${harp_word#*=}
                case $harp_size in @SIZE@) continue ;; esac
                if [ "$harp_size" = "$harp_row" ]; then harp_held=" $harp_word"; continue; fi ;;
            hugepages=*)
                case ${harp_size:-$harp_default} in @SIZE@) continue ;; esac
                if [ -n "$harp_held" ]; then harp_held= harp_row= harp_size=@OURS@; continue; fi
                if [ -z "$harp_size" ]; then harp_word="hugepagesz=$harp_default $harp_word"; fi ;;
        esac
        harp_kept="$harp_kept$harp_held $harp_word" harp_held= harp_row= harp_rest=$harp_word
        while [ "$harp_rest" != "${harp_rest#*\\"}" ]; do
            harp_rest=${harp_rest#*\\"}
            if [ -n "$harp_quoted" ]; then harp_quoted=; else harp_quoted='" '; fi
        done
    done
    harp_kept=$harp_kept$harp_held
}
set -f
for harp_word in $GRUB_CMDLINE_LINUX $GRUB_CMDLINE_LINUX_DEFAULT; do
    case $harp_word in --) break ;; default[-_]hugepagesz=*) harp_default=${harp_word#*=} ;; esac
done
harp_size= harp_end= harp_quoted=
harp_edit $GRUB_CMDLINE_LINUX
    GRUB_CMDLINE_LINUX=$harp_args$harp_kept
harp_main_size=$harp_size harp_main_end=$harp_end
for harp_name in _DEFAULT _RECOVERY; do
    eval harp_line='$GRUB_CMDLINE_LINUX'$harp_name
    harp_size=$harp_main_size harp_end=$harp_main_end harp_quoted=
    harp_edit $harp_line
    if [ -n "$harp_line" ]; then eval GRUB_CMDLINE_LINUX$harp_name='${harp_kept# }'; fi
done
set +f
"""


def code(wanted: HugepageArgs) -> str:
    """Return the shell code, which a second run finds as the first one wrote it."""
    text = _CODE.replace("@ARGS@", str(wanted)).replace("@SIZE@", _PATTERNS[wanted.page_size])
    text = text.replace("@OURS@", spelling(wanted.page_size))
    return BEGIN + text.replace("@DEFAULT@", spelling(wanted.kernel_default)) + END


def defaults_path(boot: Boot) -> str:
    """Return the file that holds the code: Debian's menu is /boot/grub/grub.cfg, others' /boot/grub2."""
    return HARP_DROPIN if "/grub/" in boot.config else DEFAULTS


def with_code(text: str, wanted: HugepageArgs) -> str:
    """Return a file whose last part is the code, in the place of an earlier one."""
    rest = _BLOCK.sub("", text)
    return rest + ("" if not rest or rest.endswith("\n") else "\n") + code(wanted)
