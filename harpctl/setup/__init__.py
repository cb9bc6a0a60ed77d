# SPDX-License-Identifier: Apache-2.0
"""harpctl setup: options are compared with the facts, planned, applied and verified."""
