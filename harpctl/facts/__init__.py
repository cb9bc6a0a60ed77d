# SPDX-License-Identifier: Apache-2.0
"""Facts of a host, as data, gathered without changing anything."""
