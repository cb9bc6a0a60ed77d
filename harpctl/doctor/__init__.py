# SPDX-License-Identifier: Apache-2.0
"""validate, doctor and topo: what is right on a host, what is not, and the command that repairs it."""
