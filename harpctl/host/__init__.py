# SPDX-License-Identifier: Apache-2.0
"""The one door to the machine: files and commands below a root, which may be a directory tree."""
