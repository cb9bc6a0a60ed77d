# SPDX-License-Identifier: Apache-2.0
"""Changes as data: plans made of steps, applied under a journal that can undo each of them."""
