# SPDX-License-Identifier: Apache-2.0
"""The recordings of the plugin's flight recorder: read, described, merged with the other end's, drawn."""
