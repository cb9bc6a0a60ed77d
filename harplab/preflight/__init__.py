# SPDX-License-Identifier: Apache-2.0
"""What `harpctl preflight` measures: rates between all hosts, and HARP beside NCCL's own sockets."""
