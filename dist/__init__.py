# SPDX-License-Identifier: Apache-2.0
"""Builds dist/harp_setup.sh, the self-contained file."""
