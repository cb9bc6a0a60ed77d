# SPDX-License-Identifier: Apache-2.0
"""harp-perf run on hosts: one side or two in turns, between any hosts that run commands."""
