# SPDX-License-Identifier: Apache-2.0
"""harpctl setup: what the operator asked for, held against the facts, made a plan, applied and proved."""
