# SPDX-License-Identifier: Apache-2.0
"""The admission policy of docs/how-to/deploy/access.yaml: the installer changes one label of its own node."""

from __future__ import annotations

import copy
from typing import Any

import celpy
import pytest
from celpy.adapter import json_to_cel

from harpctl.node.cluster import LABEL
from tests.harpctl.node.schemas import Document, load_document

POLICY = load_document("access.yaml", "ValidatingAdmissionPolicy")["spec"]
NODE_NAME = "authentication.kubernetes.io/node-name"
NODE = {
    "metadata": {"name": "gpu1", "labels": {"kubernetes.io/hostname": "gpu1", "zone": "a"}},
    "spec": {"podCIDR": "10.1.0.0/24"},
}


def evaluate_rule(expression: str, request: Document, old: Document, new: Document) -> bool:
    environment = celpy.Environment()
    program = environment.program(environment.compile(expression))
    names: Any = {
        name: json_to_cel(value) for name, value in (("request", request), ("oldObject", old), ("object", new))
    }
    return bool(program.evaluate(names))


def make_request(user: str = "harp-installer", node: str = "gpu1") -> Document:
    extra = {NODE_NAME: [node]} if node else {}
    return {"userInfo": {"username": f"system:serviceaccount:harp:{user}", "extra": extra}}


def is_allowed(requested: Document, old: Document, new: Document) -> bool:
    return all(evaluate_rule(rule["expression"], requested, old, new) for rule in POLICY["validations"])


def change_node(path: str, value: object) -> Document:
    new = copy.deepcopy(NODE)
    *folders, last = path.split("|")
    at: Any = new
    for folder in folders:
        at = at.setdefault(folder, {})
    if value is None:
        del at[last]
    else:
        at[last] = value
    return new


def test_policy_is_for_the_installer_alone() -> None:
    (condition,) = POLICY["matchConditions"]
    assert evaluate_rule(condition["expression"], make_request(), NODE, NODE)
    assert not evaluate_rule(condition["expression"], make_request(user="other"), NODE, NODE)


def test_installer_sets_changes_and_removes_its_label() -> None:
    labelled = change_node(f"metadata|labels|{LABEL}", "1.0.0")
    assert is_allowed(make_request(), NODE, labelled)
    assert is_allowed(make_request(), labelled, change_node(f"metadata|labels|{LABEL}", "0.3.0"))
    assert is_allowed(make_request(), labelled, NODE)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("spec|podCIDR", "10.2.0.0/24"),
        ("spec|taints", []),
        ("metadata|labels|zone", "b"),
        ("metadata|labels|zone", None),
        ("metadata|labels|other", "1"),
        ("metadata|annotations", {"a": "b"}),
    ],
)
def test_anything_else_is_refused(path: str, value: object) -> None:
    assert not is_allowed(make_request(), NODE, change_node(path, value))


@pytest.mark.parametrize("node", ["gpu2", ""])
def test_another_node_is_refused(node: str) -> None:
    assert not is_allowed(make_request(node=node), NODE, change_node(f"metadata|labels|{LABEL}", "1.0.0"))
