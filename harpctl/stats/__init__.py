# SPDX-License-Identifier: Apache-2.0
"""What the plugin tells of a running job: its statistics files, read, shown and exported."""
