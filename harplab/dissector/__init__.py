# SPDX-License-Identifier: Apache-2.0
"""Dissectors of what HARP sends, made from the tables of docs/reference/wire.md."""
