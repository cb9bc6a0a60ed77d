# SPDX-License-Identifier: Apache-2.0
"""Clusters in virtual time: `harpctl lab simulate`."""
