# SPDX-License-Identifier: Apache-2.0
"""The Python whose PyTorch sees a GPU, or the reason why there is none."""

from __future__ import annotations

import os

import pytest

from harpctl.errors import HarpError
from tests.gpu import job


@pytest.fixture(scope="session")
def gpu_python() -> str:
    try:
        return job.find_python(job.candidate_pythons(os.environ))
    except HarpError as error:
        pytest.skip(str(error))
