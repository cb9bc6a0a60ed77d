# SPDX-License-Identifier: Apache-2.0
"""harpctl: sets up, measures and maintains HARP on a host."""

__version__ = "1.0.0"
