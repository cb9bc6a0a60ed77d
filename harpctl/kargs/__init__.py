# SPDX-License-Identifier: Apache-2.0
"""Kernel arguments: read, replaced in the place the host really boots from, and verified there."""
