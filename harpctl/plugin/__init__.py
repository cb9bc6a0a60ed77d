# SPDX-License-Identifier: Apache-2.0
"""The plugin file on a host: where it lies, whether it is on, and what kind of library it is."""
