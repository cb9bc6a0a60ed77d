# SPDX-License-Identifier: Apache-2.0
"""What the plugin's flight recorder kept of a process: read, described, merged with the other end's, drawn."""
