# SPDX-License-Identifier: Apache-2.0
"""The manifests of docs/how-to/deploy: valid by upstream's schemas, few rights, in accord with harpctl."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from harpctl import __version__
from harpctl.cli import app
from harpctl.node.cluster import LABEL
from harpctl.node.profile import FOLDER, library_path, profile_path
from tests.harpctl.node.schemas import (
    DEPLOY,
    NEWEST,
    OLDEST,
    Document,
    InvalidError,
    check_document,
    check_own,
    containers_of,
    load_document,
    load_documents,
    pod_templates,
)

PRIVILEGED = "privileged.yaml"  # MPIJob v1, of which schemas/ has none; tests/meta reads it
FILES = sorted(path.name for path in DEPLOY.glob("*.yaml") if path.name != PRIVILEGED)
JOBS = ("trainjob.yaml", "mpijob.yaml", "interface.yaml")
DISALLOWED = ("hostNetwork", "hostPID", "hostIPC")


def list_cases() -> list[Any]:
    return [
        pytest.param(found, id=f"{name}-{found['kind']}-{number}")
        for name in FILES
        for number, found in enumerate(load_documents(name))
    ]


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
@pytest.mark.parametrize("found", list_cases())
def test_manifest_is_valid(found: Document, version: str) -> None:
    check_document(found, version)


def find_places(value: object, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Return where a document has mappings whose fields a schema names."""
    free = {"metadata", "labels", "matchLabels", "nodeSelector", "limits", "requests", "data", "annotations"}
    if isinstance(value, dict):
        yield path
        for key, child in value.items():
            if key not in free:
                yield from find_places(child, (*path, key))
    elif isinstance(value, list):
        for number, child in enumerate(value):
            yield from find_places(child, (*path, number))


@pytest.mark.parametrize("found", list_cases())
def test_unknown_field_is_refused_anywhere(found: Document) -> None:
    for path in find_places(found):
        spoiled = copy.deepcopy(found)
        at: Any = spoiled
        for key in path:
            at = at[key]
        at["unheardOf"] = 1
        with pytest.raises(InvalidError):
            check_document(spoiled)


def test_network_is_a_configuration_of_host_device() -> None:
    config = json.loads(load_document("interface.yaml", "NetworkAttachmentDefinition")["spec"]["config"])
    check_own(config, "host-device")
    with pytest.raises(InvalidError):
        check_own({**config, "pciBusID": "0000:00:06.0"}, "host-device")


# ---- rights ----


def rights_of(template: Document, container: Document) -> Document:
    """Return the security context that a container has, the pod's under its own."""
    return {**template["spec"].get("securityContext", {}), **container.get("securityContext", {})}


@pytest.mark.parametrize("name", [*JOBS, "installer.yaml"])
def test_no_container_has_a_privilege(name: str) -> None:
    seen = 0
    for found in load_documents(name):
        for template in pod_templates(found):
            for container in containers_of(template):
                seen += 1
                has = rights_of(template, container)
                assert has["allowPrivilegeEscalation"] is False
                assert has["capabilities"] == {"drop": ["ALL"]}
                assert has["seccompProfile"] == {"type": "RuntimeDefault"}
                assert "privileged" not in has
                assert has.get("runAsNonRoot", False) is (name != "installer.yaml")
                assert (has["runAsUser"] == 0) is (name == "installer.yaml")
    assert seen


def test_pod_with_an_interface_passes_the_restricted_standard() -> None:
    (template,) = pod_templates(load_document("interface.yaml", "TrainingRuntime"))
    assert not any(word in template["spec"] for word in DISALLOWED)
    kinds = {key for volume in template["spec"]["volumes"] for key in volume} - {"name"}
    assert kinds == {"emptyDir", "configMap"}
    assert not any("hostPort" in str(container) for container in containers_of(template))


def test_installer_sees_one_directory_of_the_node() -> None:
    (template,) = pod_templates(load_document("installer.yaml", "DaemonSet"))
    assert template["spec"]["volumes"] == [
        {"name": "harp", "hostPath": {"path": FOLDER, "type": "DirectoryOrCreate"}}
    ]
    assert not any(word in template["spec"] for word in DISALLOWED)
    assert containers_of(template)[0]["securityContext"]["readOnlyRootFilesystem"] is True


def test_access_is_what_the_installer_requests() -> None:
    rules = [found["rules"] for found in load_documents("access.yaml") if "rules" in found]
    assert rules == [
        [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "patch"]}],
        [
            {
                "apiGroups": ["apps"],
                "resources": ["daemonsets"],
                "resourceNames": ["harp-installer"],
                "verbs": ["get"],
            }
        ],
    ]


# ---- names that must agree ----


def test_names_agree() -> None:
    installer = load_document("installer.yaml", "DaemonSet")
    namespace, name = installer["metadata"]["namespace"], installer["metadata"]["name"]
    (template,) = pod_templates(installer)
    (container,) = containers_of(template)
    assert f"--daemonset={namespace}/{name}" in container["args"]
    account = template["spec"]["serviceAccountName"]
    for found in load_documents("access.yaml"):
        for subject in found.get("subjects", []):
            assert (subject["name"], subject["namespace"]) == (account, namespace)
    (condition,) = load_document("access.yaml", "ValidatingAdmissionPolicy")["spec"]["matchConditions"]
    assert f"system:serviceaccount:{namespace}:{account}'" in condition["expression"]
    assert container["readinessProbe"]["exec"]["command"][-1] == f"/host{profile_path(FOLDER)}"
    for file in ("trainjob.yaml", "mpijob.yaml"):
        text = (DEPLOY / file).read_text(encoding="utf-8")
        assert f"{{key: {LABEL}, operator: Exists}}" in text
        assert f"hostPath: {{path: {FOLDER}, type: Directory}}" in text


def test_images_of_the_installer_have_this_version() -> None:
    images = {
        container["image"]
        for name in ("installer.yaml", "interface.yaml")
        for found in load_documents(name)
        for template in pod_templates(found)
        for container in containers_of(template)
        if "harp-installer" in container["image"]
    }
    assert images == {f"registry.example/harp-installer:{__version__}"}


def test_init_container_brings_what_the_job_mounts(tmp_path: Path, plugin_file: Path) -> None:
    (template,) = pod_templates(load_document("interface.yaml", "TrainingRuntime"))
    (init,) = template["spec"]["initContainers"]
    (volume,) = init["volumeMounts"]
    words = [word.replace(volume["mountPath"], str(tmp_path)) for word in init["args"]]
    done = CliRunner().invoke(app, [*words, "--plugin", str(plugin_file)])
    assert done.exit_code == 0, done.output
    mounted = {
        mount["mountPath"]: tmp_path / mount["subPath"]
        for mount in template["spec"]["containers"][0]["volumeMounts"]
        if mount["name"] == volume["name"]
    }
    assert mounted.keys() == {FOLDER, "/etc/nccl.conf"}
    library = library_path(FOLDER)
    assert (mounted[FOLDER] / library.removeprefix(f"{FOLDER}/")).read_bytes() == plugin_file.read_bytes()
    annotation = template["metadata"]["annotations"]["k8s.v1.cni.cncf.io/networks"]
    ((interface),) = [network["interface"] for network in json.loads(annotation)]
    lines = mounted["/etc/nccl.conf"].read_text(encoding="utf-8").splitlines()
    assert lines[1:] == [f"NCCL_NET_PLUGIN={library}", f"HARP_IFNAME={interface}"]


def test_example_is_a_program() -> None:
    files = load_document("trainjob.yaml", "ConfigMap")["data"]
    compile(files["all_reduce.py"], "all_reduce.py", "exec")
    for name in ("trainjob.yaml", "interface.yaml"):
        (path,) = load_document(name, "TrainJob")["spec"]["trainer"]["command"][1:]
        assert path == "/example/all_reduce.py"
