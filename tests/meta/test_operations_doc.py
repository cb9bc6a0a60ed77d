# SPDX-License-Identifier: Apache-2.0
"""docs/how-to/operations.md is right: its commands on a tree, its paths, the contract's lines."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from harpctl.cli import app
from tests.harpctl.machine import build_machine
from tests.meta.test_docs import ROOT, code_lines, list_items, read_document

TEXT = read_document(ROOT / "docs" / "how-to" / "operations.md")
IMAGE = "/mnt/image"
DOCKER = (
    "docker run -it --rm --gpus all --privileged --net=host -v /sys:/sys -v /dev/hugepages:/dev/hugepages "
    "-v /usr/local/tfabric/tools:/usr/local/tfabric/tools IMAGE"
)
LATER = {
    "/dev/hugepages",
    "/run/harp",
    "/usr/local/tfabric/tools/harpctl",
}  # paths of a running host, of a run under way, and of the one-file installer


def find_commands(start: str) -> list[str]:
    """Return the indented commands that begin like this."""
    return [line for line in code_lines(TEXT) if line.startswith(start)]


def run_line(line: str, root: Path) -> Result:
    words = line.replace(IMAGE, str(root)).split()
    assert words.pop(0) == "harpctl"
    return CliRunner().invoke(app, words if "--root" in words else [*words, "--root", str(root)])


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """Provide an image as it lies on a disk: with no proc and no sys of a machine."""
    root = build_machine(tmp_path, "ubuntu-22.04")
    for name in ("proc", "sys"):
        shutil.rmtree(root / name)
        (root / name).mkdir()
    return root


def test_an_image_is_prepared_installed_switched_and_undone(image: Path, plugin_file: Path) -> None:
    before = {path: path.read_bytes() for path in image.rglob("*") if path.is_file()}
    (setup,) = find_commands(f"harpctl setup --root {IMAGE}")
    done = run_line(setup, image)
    assert done.exit_code == 0, done.output
    assert "Set up HARP successfully" in done.stdout.splitlines()
    assert run_line(f"harpctl install --plugin {plugin_file}", image).exit_code == 0
    made = list_items(TEXT.partition("## The work of setup\n")[2].partition("\n### ")[0])
    assert made
    for path in (word for item in [*made, TEXT.partition("## Files\n")[2]] for word in item.split("`")):
        if path.startswith("/") and path not in LATER:
            assert list(image.glob(path[1:].replace("<N>", "*"))), path
    states = []
    for line in ("harpctl disable", "harpctl enable", "harpctl validate"):
        assert line in find_commands("harpctl")
        states.append((run_line(line, image).exit_code, run_line("harpctl status", image).exit_code))
    assert states == [(0, 1), (0, 0), (0, 0)]
    assert run_line("harpctl rollback", image).exit_code == 0
    assert {path: path.read_bytes() for path in image.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("cards", [1, 2, 4, 8])
def test_the_number_of_pages_is_the_contracts(tmp_path: Path, cards: int) -> None:
    assert "15, 20, 30 and 50 pages for 1, 2, 4 and 8 GPUs" in " ".join(TEXT.split())
    root = build_machine(tmp_path, "rocky-9", f"gpu{cards}")
    given = [
        word
        for n in range(1, cards + 1)
        for word in ("--address", f"eth{n}=10.0.{n}.1{n}/24", "--gateway", f"eth{n}=10.0.{n}.1")
    ]
    done = run_line(" ".join(["harpctl setup --dry-run", *given]), root)
    assert done.exit_code == 0, done.output
    assert f"default_hugepagesz=1GB hugepagesz=1GB hugepages={cards * 5 + 10}" in done.stdout


def test_the_containers_line_is_the_contracts_own() -> None:
    assert find_commands("docker run") == [DOCKER]


def test_the_pods_manifest_keeps_what_the_contract_names() -> None:
    assert "(deploy/privileged.yaml)" in TEXT
    text = " ".join(read_document(ROOT / "docs" / "how-to" / "deploy" / "privileged.yaml").split())
    for part in (
        "apiVersion: kubeflow.org/v1 kind: MPIJob",
        "securityContext: {privileged: true}",
        "{mountPath: /sys/, name: sys}",
        "{mountPath: /dev/hugepages, name: dev-hge}",
        "{mountPath: /usr/local/tfabric/tools, name: tfabric}",
        "{name: sys, hostPath: {path: /sys/}}",
        "{name: dev-hge, hostPath: {path: /dev/hugepages/}}",
        "{name: tfabric, hostPath: {path: /usr/local/tfabric/tools/}}",
        "hugepages-1Gi: 50Gi memory: 100Gi nvidia.com/gpu: 8",
        "hostNetwork: true",
    ):
        assert part in text, part
