# SPDX-License-Identifier: Apache-2.0
"""The lab: hosts made of network namespaces, joined by veth links with caps, loss and MTUs."""
