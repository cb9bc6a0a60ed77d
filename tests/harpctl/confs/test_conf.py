# SPDX-License-Identifier: Apache-2.0
"""The conf file's reader against the plugin's own parser, and the writer against the reader."""

from __future__ import annotations

import itertools
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cffi
import hypothesis.strategies as st
import pytest
from hypothesis import example, given

from harpctl.confs import conf as confs
from harpctl.confs.conf import NAMED, Conf, conf_number, conf_of, conf_path, parse_conf, render_conf
from harpctl.confs.table import KEYS, TABLE, Setting
from harpctl.confs.values import read_ip
from harpctl.errors import HarpError
from tests.draws import draw_examples

ROOT = Path(__file__).resolve().parents[3]
SOURCE = ROOT / "plugin" / "src"
CORPUS = ROOT / "tests" / "fuzz" / "corpus" / "conf"

# What the plugin understood, key by key; the sentence where it did not.
ORACLE = r"""
#include <arpa/inet.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "host/conf.h"
static void put(char *out, size_t bytes, const struct harp_setting *row, const void *value) {
  const uint8_t *mac = value;
  const struct sockaddr_storage *address = value;
  const struct sockaddr_in *in = value;
  const struct sockaddr_in6 *in6 = value;
  const struct harp_cores *cores = value;
  const struct harp_ports *ports = value;
  int used = 0;
  switch (row->kind) {
  case HARP_KIND_NUMBER: snprintf(out, bytes, "%d", *(const int *)value); break;
  case HARP_KIND_SECONDS:
    snprintf(out, bytes, "%" PRIu64, (uint64_t)(*(const harp_ns *)value / HARP_SEC(1)));
    break;
  case HARP_KIND_SIZE: snprintf(out, bytes, "%zu", *(const size_t *)value); break;
  case HARP_KIND_WORD: snprintf(out, bytes, "%s", row->words[*(const unsigned *)value]); break;
  case HARP_KIND_MAC:
    snprintf(out, bytes, "%02x:%02x:%02x:%02x:%02x:%02x", mac[0], mac[1], mac[2], mac[3], mac[4], mac[5]);
    break;
  case HARP_KIND_ADDRESS:
    value = address->ss_family == AF_INET6 ? (const void *)&in6->sin6_addr : &in->sin_addr;
    inet_ntop(address->ss_family, value, out, (socklen_t)bytes);
    break;
  case HARP_KIND_CORES:
    for (unsigned i = 0; i < cores->count; i++)
      used += snprintf(out + used, bytes - (size_t)used, "%s%u", i ? ", " : "", cores->at[i]);
    break;
  case HARP_KIND_PORTS: snprintf(out, bytes, "%u, %u", ports->low, ports->high); break;
  default: snprintf(out, bytes, "%s", (const char *)value);
  }
}
int oracle(const char *text, size_t bytes, char *out, size_t out_bytes);
int oracle(const char *text, size_t bytes, char *out, size_t out_bytes) {
  struct harp_conf conf;
  struct harp_error sentence;
  int rc = harp_conf_parse(&conf, "f.conf", text, bytes, &sentence);
  if (rc < 0) {
    snprintf(out, out_bytes, "%s", sentence.text);
    return rc;
  }
  out[0] = 0;
  for (unsigned id = 0; id < HARP_SETTING_COUNT; id++) {
    const struct harp_setting *row = &harp_setting_table[id];
    char value[1024];
    if (!harp_setting_is_set(&conf.values, id)) continue;
    put(value, sizeof value, row, (const char *)&conf.values + row->offset);
    size_t used = strlen(out);
    snprintf(out + used, out_bytes - used, "%s = %s|", row->key, value);
  }
  return 0;
}
"""

Parse = Callable[[bytes], tuple[bool, str]]


@pytest.fixture(scope="session")
def plugin_parse(tmp_path_factory: pytest.TempPathFactory) -> Parse:
    """Provide the plugin's own parser: whether it accepts, and the keys that it read or its error."""
    if shutil.which("cc") is None:
        pytest.skip("needs a C compiler")
    folder = tmp_path_factory.mktemp("oracle")
    (folder / "oracle.c").write_text(ORACLE)
    sources = [
        *SOURCE.glob("base/*.c"),
        *(SOURCE / f"host/{name}.c" for name in ("conf", "option", "setting")),
    ]
    sources += [SOURCE / "host/arena.c", SOURCE / "host/node.c"]
    library = folder / "oracle.so"
    argv = ["cc", "-shared", "-fPIC", "-std=gnu11", "-D_GNU_SOURCE", '-DHARP_VERSION="oracle"']
    argv += [f"-I{SOURCE}", "-o", str(library)]
    subprocess.run([*argv, str(folder / "oracle.c"), *map(str, sources), "-lpthread"], check=True)
    ffi = cffi.FFI()
    ffi.cdef("int oracle(const char *text, size_t bytes, char *out, size_t out_bytes);")
    code = ffi.dlopen(str(library))

    def run_oracle(data: bytes) -> tuple[bool, str]:
        out = ffi.new("char[2048]")
        rc = code.oracle(ffi.from_buffer(data), len(data), out, 2048)
        return rc == 0, ffi.string(out).decode("latin-1")

    return run_oracle


def oracle_text(conf: Conf) -> str:
    """Write a Conf as the oracle does."""
    found = {key: conf.get(key) for key in KEYS}
    texts = {
        key: ", ".join(map(str, value)) if isinstance(value, tuple) else value
        for key, value in found.items()
        if value is not None
    }
    return "".join(f"{key} = {text}|" for key, text in texts.items())


def python_parse(data: bytes) -> tuple[bool, str]:
    try:
        return True, oracle_text(parse_conf(data.decode("utf-8", "surrogateescape"), "f.conf"))
    except HarpError as error:
        return False, error.message


# ---- texts that are nearly conf files ----

NUMBERS = st.one_of(
    st.integers(0, 70000).map(str),
    st.sampled_from(["0", "00", "0012", "-1", "+1", "1e3", "576", "575", "65536", "65537", "1023", "1024", "64"]),
    st.sampled_from(["65", "4095", "4096", "18446744073709551616", "9" * 60, "0" * 80 + "7", "10000000", "601"]),
)
SIZES = st.builds(str.__add__, NUMBERS, st.sampled_from(["", "K", "M", "G", "k", "KB", " G"]))
CORES = st.lists(
    st.one_of(NUMBERS, st.builds(lambda a, b: f"{a}-{b}", st.integers(0, 70), st.integers(0, 70))), max_size=4
).map(",".join)
PORTS = st.builds(lambda a, b: f"{a}-{b}", NUMBERS, NUMBERS)
WORDS = st.sampled_from(
    [*itertools.chain.from_iterable(row.words for row in TABLE), "AUTO", "auto x", '"udp"', "1g", ""]
)
NAMES = st.sampled_from(
    ["eth1", "ens1f0np0", ".", "..", "a" * 15, "a" * 16, "eth1:0", "eth 1", "é", "e/1", "e;1", "#"]
)
ADDRESSES = st.sampled_from(
    [
        "10.0.0.1",
        "10.0.0.01",
        "10.0.0",
        "10.0.0.256",
        "fd00::1",
        "FE80::1%eth0",
        "::",
        "::ffff:1.2.3.4",
        "1.2.3.4/24",
    ]
)
HEXES = st.sampled_from(
    [
        "52:54:00:12:34:56",
        "52:54:00:AB:cd:ef",
        "52-54-00-12-34-56",
        "52:54:00:12:34",
        "0000:3B:00.1",
        "3b:00.1",
    ]
)
VALUES = st.one_of(NUMBERS, SIZES, CORES, PORTS, WORDS, NAMES, ADDRESSES, HEXES, st.text(max_size=8))
SPACES = st.sampled_from(["", " ", "\t", "  \t", "\r", "\v", "\xa0"])
KEY_NAMES = st.sampled_from([*KEYS, "", "Mtu", "speed", "[eni]", "#"])
SECTION_LINES = st.sampled_from(
    [
        "[eni]",
        "[engine]",
        "[memory]",
        "[transport]",
        "[ENI]",
        "[eni",
        "[]",
        "[",
        "[eni] # x",
        " [eni]",
        "[ eni ]",
        "[a]b]",
    ]
)
SETTINGS = st.builds(
    lambda *parts: "".join(parts), SPACES, KEY_NAMES, SPACES, st.just("="), SPACES, VALUES, SPACES
)
LINES = st.one_of(
    SECTION_LINES,
    SETTINGS,
    SETTINGS,
    st.sampled_from(["", "# x", "; y", " # z", "x", "=", "a=b=c", "\0", "\r", "y" * 513]),
)
ENDS = st.sampled_from(["\n", "\r\n", "\r", "\n\n"])


@st.composite
def near_confs(draw: st.DrawFn) -> bytes:
    """Draw lines of which most are right, so that values are reached and not only the first error."""
    lines = [draw(st.sampled_from(["", "\ufeff"])) + "[eni]", "interface = eth1"]
    section = "eni"
    for _ in range(draw(st.integers(0, 6))):
        if draw(st.integers(0, 3)) == 0:
            lines.append(draw(LINES))
            continue
        key = draw(st.sampled_from([*KEYS][1:]))
        if KEYS[key].section != section:
            section = str(KEYS[key].section)
            lines.append(f"[{section}]")
        lines.append(f"{key} = {draw(VALUES)}")
    end = draw(ENDS)
    return (end.join(lines) + draw(st.sampled_from(["", end]))).encode("utf-8", "surrogateescape")


@draw_examples(1500)
@given(
    data=st.one_of(
        near_confs(), st.binary(max_size=80), st.lists(LINES, max_size=6).map(lambda x: "\n".join(x).encode())
    )
)
@example(data=b"")
@example(data=b"[eni]\ninterface = eth1")
@example(data=b"[eni]\ninterface = eth1\n" + b"#" * (64 << 10))
@example(data=b"[eni]\ninterface = eth1\n#" + b"x" * 511 + b"\r\n")
@example(data=b"[eni]\ninterface = eth1\n#" + b"x" * 512 + b"\n")
def test_reads_what_the_plugin_reads(plugin_parse: Parse, data: bytes) -> None:
    assert python_parse(data) == plugin_parse(data)


@pytest.mark.parametrize("file", sorted(CORPUS.iterdir()), ids=lambda file: file.name)
def test_corpus_of_the_fuzzer(plugin_parse: Parse, file: Path) -> None:
    assert python_parse(file.read_bytes()) == plugin_parse(file.read_bytes())


@pytest.mark.parametrize("key", KEYS)
@draw_examples(60)
@given(value=VALUES)
def test_each_key_takes_what_the_plugin_takes(plugin_parse: Parse, key: str, value: str) -> None:
    head = "" if key == "interface" else "[eni]\ninterface = eth1\n"
    section = "" if head and KEYS[key].section == "eni" else f"[{KEYS[key].section}]\n"
    data = f"{head}{section}{key} = {value}\n".encode("utf-8", "surrogateescape")
    assert python_parse(data) == plugin_parse(data)


# ---- writing ----

KINDS: dict[str, Callable[[Setting], st.SearchStrategy[Any]]] = {
    "interface": lambda _row: st.from_regex(r"[a-z][a-z0-9.]{0,14}", fullmatch=True),
    "mac": lambda _row: st.just("52:54:00:12:34:56"),
    "pci": lambda _row: st.just("0000:3b:00.1"),
    "address": lambda _row: st.ip_addresses().map(lambda ip: read_ip(str(ip))),  # in the usual form
    "number": lambda row: st.integers(row.min, row.max),
    "seconds": lambda row: st.integers(row.min, row.max),
    "size": lambda row: st.integers(row.min, row.max) | st.integers(1, 64).map(lambda gib: gib << 30),
    "word": lambda row: st.sampled_from(row.words),
    "cores": lambda row: st.lists(st.integers(0, 4095), min_size=1, max_size=row.max, unique=True).map(tuple),
    "ports": lambda row: st.tuples(st.integers(row.min, 30000), st.integers(30000, row.max)),
}
CONFS = st.fixed_dictionaries(
    {"interface": KINDS["interface"](KEYS["interface"])},
    optional={key: KINDS[row.kind](row) for key, row in KEYS.items() if key != "interface"},
).map(conf_of)


@draw_examples(300)
@given(conf=CONFS)
def test_what_is_written_is_read_back(plugin_parse: Parse, conf: Conf) -> None:
    text = render_conf(conf)
    read = parse_conf(text, "f.conf")
    assert render_conf(read) == text
    assert plugin_parse(text.encode()) == (True, oracle_text(read))
    assert read == conf


def test_text_of_a_file() -> None:
    conf = Conf(interface="eth1", mac="52:54:00:12:34:56", cores=(2, 3, 9), bytes=2 << 30, ports=(40000, 40063))
    assert render_conf(conf) == (
        "# Written by harpctl; docs/reference/configuration.md of HARP says what each key means.\n"
        "[eni]\ninterface = eth1\nmac = 52:54:00:12:34:56\n\n"
        "[engine]\ncores = 2-3,9\n\n[memory]\nbytes = 2G\n\n[transport]\nports = 40000-40063\n"
    )


def test_keys_with_a_name_of_their_own_are_in_the_table() -> None:
    assert set(KEYS) >= NAMED


@pytest.mark.parametrize("row", [row for row in TABLE if row.initial is not None], ids=lambda row: row.help)
def test_each_default_is_a_value(row: Setting) -> None:
    assert row.write(row.read(str(row.initial))) == row.initial


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("ztcp0.conf", 0),
        ("ztcp9999.conf", 9999),
        *((f"ztcp{text}.conf", None) for text in ("", "00", "01", "-1", "+1", "10000", "1x", "0.conf")),
        ("ztcp0.conf.bak", None),
        ("ZTCP0.conf", None),
    ],
)
def test_names_of_conf_files(name: str, number: int | None) -> None:
    assert conf_number(name) == number
    if number is not None:
        assert conf_path(number) == f"{confs.CONF_DIR}/{name}"
