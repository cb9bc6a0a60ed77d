# SPDX-License-Identifier: Apache-2.0
"""What is true of a host: facts are data, gathered without changing anything."""
