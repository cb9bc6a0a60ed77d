# SPDX-License-Identifier: Apache-2.0
"""The plugin's statistics files of running jobs: read, shown and exported."""
