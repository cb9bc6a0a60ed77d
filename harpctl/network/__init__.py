# SPDX-License-Identifier: Apache-2.0
"""Secondary ENIs: addresses, MTU, channels, policy routing and ARP, at once and after the next boot."""
