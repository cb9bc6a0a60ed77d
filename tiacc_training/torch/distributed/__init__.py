# SPDX-License-Identifier: Apache-2.0
"""The place of TI-ACC's launcher."""
