# SPDX-License-Identifier: Apache-2.0
"""The library as RCCL finds and uses it: by RCCL's file name, with RCCL's name in what HARP logs."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conformance.driver import PLUGIN_FILE

# Stands for librccl.so.1: opens librccl-net-harp.so, and initialises table v8 with a log function of its own.
CODE = """
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
static void say(int level, unsigned long flags, const char *file, int line, const char *format, ...) {
  va_list arguments;
  (void)level, (void)flags, (void)file, (void)line;
  va_start(arguments, format);
  vprintf(format, arguments);
  va_end(arguments);
  putchar('\\n');
}
typedef void logger(int, unsigned long, const char *, int, const char *, ...);
struct table { const char *name; int (*init)(logger *); };
int use_plugin(void) {
  void *plugin = dlopen("librccl-net-harp.so", RTLD_NOW | RTLD_LOCAL);
  const struct table *table = plugin ? dlsym(plugin, "ncclNetPlugin_v8") : NULL;
  if (!table) return -1;
  int result = table->init(say);
  fflush(stdout);
  return result;
}
"""
LOAD = "import ctypes, sys; print(ctypes.CDLL(sys.argv[1]).use_plugin())"


def use_library(folder: Path, library: str, **environment: str) -> str:
    """Let a library of a name use the plugin; return what it logs and the result of init."""
    source = folder / "rccl.c"
    source.write_text(CODE)
    file = folder / library
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(file), str(source), "-ldl"], check=True)
    shutil.copy(PLUGIN_FILE, folder / "librccl-net-harp.so")
    env = {"LD_LIBRARY_PATH": str(folder), "HARP_CONF_DIR": str(folder), **environment}
    argv = [sys.executable, "-c", LOAD, str(file)]
    return subprocess.run(argv, env=env, capture_output=True, text=True, check=True, timeout=60).stdout


@pytest.mark.parametrize(("library", "name"), [("librccl.so.1", "RCCL"), ("libnccl.so.2", "NCCL")])
def test_the_log_names_the_library_that_uses_it(tmp_path: Path, library: str, name: str) -> None:
    assert f"is disabled by HARP_DISABLE=1; {name} uses another network" in use_library(
        tmp_path, library, HARP_DISABLE="1"
    )
    output = use_library(tmp_path, library)
    file = "librccl-net.so" if name == "RCCL" else "libnccl-net.so"
    assert f"or move {file} out of the library path to use {name}'s own sockets" in output


def test_it_opens_by_rccls_name(tmp_path: Path) -> None:
    output = use_library(tmp_path, "librccl.so.1", HARP_IFNAME="=lo")
    assert output.splitlines()[-1] == "0"
