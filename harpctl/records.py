# SPDX-License-Identifier: Apache-2.0
"""Data from elsewhere, made typed records: answers of other hosts, files of bundles, other processes.

Whoever reads such data bounds it before it reads, and passes it through `decode`: what comes out has the
types that are asked for and printable texts. What does not fit becomes a HarpError of one sentence.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from harpctl.console import escape_unprintable
from harpctl.errors import ExitCode, HarpError

T = TypeVar("T")
REASON_CHARS_MAX = 200


def decode_json(data: bytes | str, type_: type[T], what: str, hint: str = "", keep: str = "") -> T:
    """Return JSON from elsewhere as a type. Raises HarpError, whose sentence begins with `what`.

    `keep` are control characters that its texts may have, as a text of several lines has.
    """
    try:
        return msgspec.convert(escape_texts(msgspec.json.decode(data), keep), type_, str_keys=True)
    except RecursionError:
        reason = "it is nested too deeply"
    except (msgspec.MsgspecError, ValueError) as error:  # ValueError: texts that are no UTF-8, long numbers
        reason = escape_unprintable(str(error))[:REASON_CHARS_MAX]
    raise HarpError(f"{what} is not understood: {reason}.", hint, ExitCode.WRONG_DATA)


def escape_texts(value: object, keep: str = "") -> object:
    """Return plain data whose texts are printable, but for the control characters to keep."""
    if isinstance(value, str):
        return escape_unprintable(value, keep)
    if isinstance(value, dict):
        return {escape_unprintable(str(key)): escape_texts(item, keep) for key, item in value.items()}
    return [escape_texts(item, keep) for item in value] if isinstance(value, (list, tuple)) else value
