# SPDX-License-Identifier: Apache-2.0
"""Stands in for SQLite, which harpctl needs not: a library imports it and does not use it."""
