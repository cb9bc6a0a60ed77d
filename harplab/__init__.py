# SPDX-License-Identifier: Apache-2.0
"""Network namespaces that stand for hosts (lab), and measurements on them or on real hosts (bench)."""
