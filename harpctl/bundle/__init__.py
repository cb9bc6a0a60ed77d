# SPDX-License-Identifier: Apache-2.0
"""The support bundle: what helps to find a fault of a host from elsewhere, in one file without secrets."""
