# SPDX-License-Identifier: Apache-2.0
"""harpctl bench: drives harp-perf between hosts of a lab, over loopback or ssh, and tables the figures."""
