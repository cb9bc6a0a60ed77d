# SPDX-License-Identifier: Apache-2.0
"""The recipes are short, say how to see that they worked and what was run, and name only what exists."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from harpctl.bundle.allow import VARIABLES
from harpctl.confs.table import VARIABLES as HARP_VARIABLES
from tests.meta.test_docs import ROOT, TESTED, join_lines, read_document

RECIPES = sorted((ROOT / "docs" / "how-to" / "recipes").glob("*.md"))
OF_NCCL = ROOT / "tests" / "nccl" / "test_recipes.py"
WORDS_MAX = 350  # a screenful
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
VARIABLE = re.compile(r"\b(?:NCCL|HARP)_[A-Z]\w*\b")
WORKED, RUN = "## Expected log", "## Tests"


def file_name(path: Path) -> str:
    return path.name


def blocks_of(path: Path) -> list[tuple[str, str]]:
    """Return the fenced blocks of a recipe: language and text."""
    return FENCE.findall(read_document(path))


def named_tests(path: Path) -> set[tuple[str, str]]:
    """Return the tests that the last section of a recipe names: file and function."""
    found = TESTED.findall(join_lines(read_document(path).partition(RUN)[2]))
    return {(file or other_file, test or other_test) for file, test, other_file, other_test in found}


def test_there_are_recipes() -> None:
    assert {"pytorch.md", "images.md", "slurm.md", "kubernetes.md", "ray-vllm.md"} <= set(map(file_name, RECIPES))
    assert {"kv-transfer.md", "torchft-diloco.md", "direct-cables.md", "amd.md"} <= set(map(file_name, RECIPES))


@pytest.mark.parametrize("recipe", RECIPES, ids=file_name)
def test_it_ends_with_how_to_see_it_and_what_was_run(recipe: Path) -> None:
    text = read_document(recipe)
    assert re.findall(r"^## .*$", text, re.MULTILINE)[-2:] == [WORKED, RUN]
    worked = text.partition(WORKED)[2].partition(RUN)[0]
    assert "NCCL INFO Using network HARP" in "".join(block for _language, block in FENCE.findall(worked))
    assert named_tests(recipe)  # test_docs checks that they exist
    assert len(text.split()) <= WORDS_MAX


@pytest.mark.parametrize("recipe", RECIPES, ids=file_name)
def test_its_blocks_can_be_parsed(recipe: Path) -> None:
    assert not re.search("^    ", FENCE.sub("", read_document(recipe)), re.MULTILINE)  # all code is in fences
    found = blocks_of(recipe)
    assert "sh" in {language for language, _text in found}
    assert {language for language, _text in found} <= {"sh", "python", "yaml", "dockerfile", "text"}
    for language, text in found:
        if language == "sh":
            done = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, check=False)
            assert (done.returncode, done.stderr) == (0, ""), text
        elif language == "python":
            compile(text, recipe.name, "exec")
        elif language == "yaml":
            assert yaml.safe_load(text)


@pytest.mark.parametrize("recipe", RECIPES, ids=file_name)
def test_its_variables_exist(recipe: Path) -> None:
    named = set(VARIABLE.findall(read_document(recipe)))
    assert {one for one in named if one.startswith("HARP_")} <= set(HARP_VARIABLES)
    assert named <= VARIABLES


def test_each_test_of_nccl_belongs_to_a_recipe() -> None:
    """The docstring names the recipe, and the recipe names the test."""
    written = re.findall(r'def (test_\w+)\(.*?\) -> None:\n    """([\w.-]+):', read_document(OF_NCCL), re.DOTALL)
    assert len(written) == len(re.findall(r"^def test_", read_document(OF_NCCL), re.MULTILINE))
    file = OF_NCCL.relative_to(ROOT).as_posix()
    for test, recipe in written:
        assert (file, test) in named_tests(ROOT / "docs" / "how-to" / "recipes" / recipe), test
