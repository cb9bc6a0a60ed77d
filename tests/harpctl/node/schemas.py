# SPDX-License-Identifier: Apache-2.0
"""The manifests of docs/how-to/deploy, and what upstream takes: schemas pinned by package, or here.

Kubernetes' own come from kubernetes-validate, Kubeflow Trainer's from kubeflow-trainer-api. No package has
those of MPIJob, NetworkAttachmentDefinition and CDI, so schemas/ holds them, with their sources.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import yaml
from kubeflow_trainer_api import models
from kubernetes_validate.utils import schema_contents
from referencing import Registry, Resource

from tests.conftest import ROOT

DEPLOY = ROOT / "docs" / "how-to" / "deploy"
SCHEMAS = Path(__file__).with_name("schemas")
OWN = {"MPIJob": "mpijob", "NetworkAttachmentDefinition": "network-attachment-definition"}
TRAINER = {
    "TrainingRuntime": models.TrainerV1alpha1TrainingRuntime,
    "TrainJob": models.TrainerV1alpha1TrainJob,
}
OLDEST, NEWEST = "1.32", "1.37"
Document = dict[str, Any]


class InvalidError(Exception):
    """A document does not match its schema."""


def load_documents(name: str) -> list[Document]:
    """Return the documents of a manifest."""
    return list(yaml.safe_load_all((DEPLOY / name).read_text(encoding="utf-8")))


def load_document(name: str, kind: str) -> Document:
    """Return the one document of a kind."""
    (found,) = [document for document in load_documents(name) if document["kind"] == kind]
    return found


def pod_templates(value: object) -> Iterator[Document]:
    """Find the pod templates anywhere in a document."""
    if isinstance(value, dict):
        if "containers" in value.get("spec", {}):
            yield value
        for child in value.values():
            yield from pod_templates(child)
    elif isinstance(value, list):
        for child in value:
            yield from pod_templates(child)


def containers_of(template: Document) -> list[Document]:
    """Return all containers of a pod template."""
    return [*template["spec"].get("initContainers", []), *template["spec"]["containers"]]


def check_own(value: object, schema: str) -> None:
    """Hold a value against a schema of ours. Raises InvalidError."""
    found = json.loads((SCHEMAS / f"{schema}.json").read_text(encoding="utf-8"))
    try:
        jsonschema.Draft202012Validator(found).validate(value)
    except jsonschema.ValidationError as error:
        raise InvalidError(error.message) from error


@functools.cache
def _make_registry(version: str) -> Registry[Any]:
    name = f"kubernetes-json-schema/v{version}.0-local-strict/_definitions.json"
    return Resource.from_contents(schema_contents(name, version)) @ Registry()


@functools.cache
def _make_validator(kind: str, api: str, version: str) -> jsonschema.Draft202012Validator:
    """Return the validator of a kind; what kubernetes_validate.validate reads anew for each document."""
    group = re.sub(r"^([^./]*)(?:\.[^/]*)?/", r"\1-", api)  # rbac.authorization.k8s.io/v1: rbac-v1
    name = f"kubernetes-json-schema/v{version}.0-local-strict/{kind.lower()}-{group}.json"
    schema = schema_contents(name, version)
    registry = Resource.from_contents(schema) @ _make_registry(version)
    return jsonschema.Draft202012Validator(schema, registry=registry)


def check_kubernetes(value: Document, version: str) -> None:
    """Hold a document against Kubernetes' own schema, unknown fields refused. Raises InvalidError."""
    error = jsonschema.exceptions.best_match(
        _make_validator(value["kind"], value["apiVersion"], version).iter_errors(value)
    )
    if error is not None:
        raise InvalidError(error.message)


def check_trainer(value: Document) -> None:
    """Hold a document against Trainer's model, which drops fields that it does not know."""
    try:
        model = TRAINER[value["kind"]].from_dict(value)
    except ValueError as error:
        raise InvalidError(str(error)) from error
    if model is None or model.to_dict() != value:
        raise InvalidError("it has fields that Trainer does not know")


def check_document(value: Document, version: str = NEWEST) -> None:
    """Hold a document, and the pods in it, against the schemas of its kind. Raises InvalidError."""
    kind = value["kind"]
    if kind in OWN:
        check_own(value, OWN[kind])
    elif kind in TRAINER:
        check_trainer(value)
    else:
        check_kubernetes(value, version)
    for template in pod_templates(value):
        pod = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "x"}, "template": template}
        check_kubernetes(pod, version)
