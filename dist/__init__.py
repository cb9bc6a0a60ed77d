# SPDX-License-Identifier: Apache-2.0
"""What builds dist/harp_setup.sh, the self-contained file, and what goes into it."""
