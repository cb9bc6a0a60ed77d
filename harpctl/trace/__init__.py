# SPDX-License-Identifier: Apache-2.0
"""What the plugin's flight recorder kept of a process: read, told, merged with the other end's, drawn."""
