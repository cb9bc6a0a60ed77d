# SPDX-License-Identifier: Apache-2.0
"""Plugins and NCCL's libraries are looked for in the right folders, on both families."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from harpctl.errors import ExitCode, HarpError
from harpctl.facts.library_dirs import library_dir, search_dirs
from harpctl.facts.plugin_files import (
    FORMS,
    MOVED,
    NAME,
    find_copies,
    find_libraries,
    find_plugins,
    library_version,
)
from harpctl.plugin.compat import abi_picked
from tests.harpctl.plugin.conftest import TRIPLET, Image

OURS = range(4, 13)


def test_library_dir_of_the_family(image: Image) -> None:
    assert library_dir(image.host, TRIPLET.partition("-")[0]) == image.libraries


def test_a_machine_without_its_own_directory_gets_none(debian: Image) -> None:
    shutil.rmtree(debian.at("/usr/lib64"))
    with pytest.raises(HarpError, match="Neither /usr/lib/riscv64-linux-gnu nor /usr/lib64") as caught:
        library_dir(debian.host, "riscv64")
    assert caught.value.exit_code == ExitCode.MISSING


def test_ld_so_conf_comes_first_in_its_order_and_each_folder_once(image: Image) -> None:
    for folder in ("/opt/b/lib", "/opt/a/lib", "/opt/c"):
        image.at(folder).mkdir(parents=True)
    image.at("/opt/a/lib64").symlink_to("lib")
    image.put(b"# all\ninclude ld.so.conf.d/*.conf\n/opt/c  # ours\n/opt/gone\nrelative\n", "/etc/ld.so.conf")
    image.put(b"/opt/b/lib\n\nhwcap 1 nosegneg\n", "/etc/ld.so.conf.d/1.conf")
    image.put(f"/opt/a/lib64\n/opt/a/lib\n/lib/{TRIPLET}\n".encode(), "/etc/ld.so.conf.d/2.conf")
    image.put(b"include /etc/ld.so.conf\n", "/etc/ld.so.conf.d/3.conf")  # a ring
    found = search_dirs(image.host)
    assert found[:2] == ("/opt/b/lib", "/opt/a/lib")
    assert "/opt/c" in found
    assert image.libraries in found
    assert len(set(found)) == len(found)


def test_an_empty_tree_has_none(tmp_path: Path) -> None:
    image = Image(tmp_path, "")
    assert search_dirs(image.host) == ()
    assert find_plugins(image.host) == ()
    assert find_libraries(image.host) == ()


@pytest.mark.parametrize("folder", ["beside", "/mnt", "/root"])
@pytest.mark.parametrize("name", FORMS)
def test_every_name_is_found(image: Image, plugin_file: Path, folder: str, name: str) -> None:
    path = f"{image.libraries if folder == 'beside' else folder}/{name}"
    image.put(plugin_file, path)
    (found,) = find_plugins(image.host)
    form = MOVED if name == NAME and folder != "beside" else FORMS[name]
    assert (found.path, found.form, found.is_harp) == (path, form, True)


def test_links_and_what_cannot_be_loaded(debian: Image, plugin_file: Path) -> None:
    folder = debian.libraries
    debian.put(plugin_file, "/opt/harp/plugin.so")
    debian.at(f"{folder}/{NAME}").symlink_to("/opt/harp/plugin.so")
    debian.at(f"{folder}/bak.{NAME}").symlink_to("nowhere")
    debian.at(f"/mnt/{NAME}").mkdir()
    installed, dangling, directory = find_copies(debian.host)
    assert (installed.target, installed.is_harp) == ("/opt/harp/plugin.so", True)
    assert dangling.problem == f"{folder}/bak.{NAME} is a link to nowhere, which is not there."
    assert not dangling.can_be_opened
    assert directory.problem == f"/mnt/{NAME} is a directory."


@pytest.mark.parametrize(
    "folder",
    [
        "/usr/local/cuda-12.4/lib64",
        "/usr/lib/python3.10/site-packages/nvidia/nccl/lib",
        "/usr/lib/python3/dist-packages/torch/lib",
        "/usr/local/lib/python3.12/dist-packages/nvidia/nccl/lib",
        "/opt/conda/lib",
        "/opt/conda/envs/train/lib/python3.11/site-packages/nvidia/nccl/lib",
        "/home/ann/miniconda3/lib/python3.9/site-packages/torch/lib",
        "/root/.local/lib/python3.8/site-packages/nvidia/nccl/lib",
    ],
)
def test_nccl_is_found_where_packages_put_it(debian: Image, folder: str) -> None:
    debian.put(b"no library", f"{folder}/libnccl.so.2.19.3")
    debian.at(f"{folder}/libnccl.so.2").symlink_to("libnccl.so.2.19.3")
    debian.at(f"{folder}/libnccl.so").symlink_to("libnccl.so.2")
    debian.put(b"", f"{folder}/libnccl_static.a")
    (found,) = find_libraries(debian.host)
    assert (found.path, found.version) == (f"{folder}/libnccl.so.2.19.3", "2.19.3")


@pytest.mark.parametrize("release", ["2.8.4", "2.32.3"])
def test_version_out_of_the_file(debian: Image, make_nccl: Callable[[str], Path], release: str) -> None:
    debian.put(make_nccl(release), f"{debian.libraries}/libnccl.so.2.0.0")
    assert library_version(debian.host, f"{debian.libraries}/libnccl.so.2.0.0") == release


def test_version_of_a_damaged_library(debian: Image, make_nccl: Callable[[str], Path]) -> None:
    debian.put(make_nccl("2.8.4").read_bytes()[:5000], f"{debian.libraries}/libnccl.so.2.9.9")
    assert library_version(debian.host, f"{debian.libraries}/libnccl.so.2.9.9") == "2.9.9"


def test_a_library_without_a_version(debian: Image, other_library: Path) -> None:
    debian.put(other_library, f"{debian.libraries}/libnccl.so.2")
    (found,) = find_libraries(debian.host)
    assert found.version == ""


@pytest.mark.parametrize(
    ("nccl", "abi"),
    [
        ("2.3.7", None),
        ("2.8.4", 4),
        ("2.11.4", 4),
        ("2.12.12", 5),
        ("2.18.6", 6),
        ("2.19.3", 7),
        ("2.23.4", 8),
        ("2.25.1", 9),
        ("2.27.7", 10),
        ("2.29.7", 11),
        ("2.30.7", 12),
        ("2.32.3", 12),
        ("3.0.0", 12),
        ("", None),
    ],
)
def test_the_interface_that_a_release_takes(nccl: str, abi: int | None) -> None:
    assert abi_picked(nccl, OURS) == abi


def test_releases_and_old_plugins() -> None:
    assert abi_picked("2.18.6", [4]) == 4
    assert abi_picked("2.19.3", [4]) is None, "the original's only interface"
    assert abi_picked("2.27.7", [5, 6]) == 6
    assert abi_picked("2.27.7", [5]) is None
