# SPDX-License-Identifier: Apache-2.0
"""The bill of materials of the packages, in CycloneDX's JSON: what is in which of them, and what built it."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import uuid
from collections.abc import Iterable
from datetime import datetime, timezone
from pathlib import Path

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import License
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL

from dist.cpython import SOURCES, python_folder
from dist.make import HERE, TIME, pinned, requirements
from dist.names import plain_version
from harpctl.build_info import build_version

NAME = "harp-{version}.cdx.json"
BUILDERS = ("ziglang", "hatchling", "click-man", "cyclonedx-python-lib")
# Parts of names. A wheel asks the index for Python packages; the lab and debug information are beside them.
WITHOUT_PYTHON_PACKAGES = (".whl", "Dockerfile", "harp-lab", "harp-d")
WITH_PYTHON = "harp_setup.sh"


def _licences(name: str) -> Iterable[License]:
    """Return what a package says of its licence, if it is installed: what builds the wheel need not be."""
    try:
        said = importlib.metadata.metadata(name)
    except importlib.metadata.PackageNotFoundError:
        return []
    words = next((said[key] for key in ("License-Expression", "License") if key in said), "")
    classifiers = [word for word in said.get_all("Classifier") or [] if word.startswith("License ::")]
    text = words or (classifiers[-1].rpartition(" :: ")[2] if classifiers else "")
    return [LicenseFactory().make_from_string(text)] if text else []


def _from_pypi(name: str, version: str) -> Component:
    url = PackageURL(type="pypi", name=name, version=version)
    return Component(name=name, version=version, purl=url, bom_ref=url.to_string(), licenses=_licences(name))


def _from_debian(name: str, version: str) -> Component:
    url = PackageURL(type="deb", namespace="debian", name=name, version=version, qualifiers={"arch": "source"})
    return Component(name=name, version=version, purl=url, bom_ref=url.to_string())


def _file(path: Path) -> Component:
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    hashes = [HashType.from_hashlib_alg("sha256", digest)]
    return Component(type=ComponentType.FILE, name=path.name, bom_ref=path.name, hashes=hashes)


def describe(out: Path, cache: Path) -> Bom:
    """Return the bill of materials of a folder of packages."""
    version = build_version()
    harp = Component(
        type=ComponentType.APPLICATION,
        name="harp",
        version=version,
        bom_ref="harp",
        licenses=[LicenseFactory().make_from_string("Apache-2.0 AND (MIT OR GPL-2.0-only)")],
    )
    bom = Bom(serial_number=uuid.uuid5(uuid.NAMESPACE_URL, f"harp {version}"))
    bom.metadata.timestamp = datetime.fromtimestamp(TIME, tz=timezone.utc)
    bom.metadata.component = harp
    for name in BUILDERS:
        bom.metadata.tools.components.add(_from_pypi(name, pinned()[name]))
    packages = [_from_pypi(name, version) for name, version in sorted(requirements().items())]
    bom.components.update(packages)
    files = [_file(path) for path in sorted(out.iterdir())]
    bom.components.update(files)
    bom.register_dependency(harp, files)
    for file in files:
        is_bare = any(part in file.name for part in WITHOUT_PYTHON_PACKAGES)
        inside = [] if is_bare else list(packages)
        told = python_folder(HERE / "stand_ins", cache) / SOURCES
        if file.name == WITH_PYTHON and told.is_file():
            sources = json.loads(told.read_text(encoding="utf-8"))
            inside += [_from_debian(name, found) for name, found in sorted(sources.items())]
            bom.components.update(inside)
        bom.register_dependency(file, inside)
    return bom


def write_sbom(out: Path, cache: Path) -> Path:
    """Write the bill of materials of a folder of packages into it, checked against CycloneDX's schema."""
    text = JsonV1Dot6(describe(out, cache)).output_as_string(indent=1)
    if wrong := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text):
        raise SystemExit(f"dist: the bill of materials is not what CycloneDX's schema wants: {wrong}")
    target = out / NAME.format(version=plain_version())
    target.write_text(text + "\n", encoding="utf-8")
    return target
