# SPDX-License-Identifier: Apache-2.0
"""Measures for `harpctl preflight`: rates between all hosts, and HARP beside NCCL's own sockets."""
