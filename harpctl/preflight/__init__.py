# SPDX-License-Identifier: Apache-2.0
"""`harpctl preflight`: whether hosts are fit for HARP together, and what it gains there."""
