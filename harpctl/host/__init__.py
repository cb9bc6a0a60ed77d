# SPDX-License-Identifier: Apache-2.0
"""All access to the machine: files and commands below a root, which may be a directory tree."""
