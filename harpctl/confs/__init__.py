# SPDX-License-Identifier: Apache-2.0
"""The conf files, ztcp<N>.conf: read as the plugin reads them, and written."""
