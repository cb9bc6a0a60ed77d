#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Slurm Prolog (slurm.conf: Prolog=, PrologFlags=Alloc): takes a node out of service whose HARP is not as it should be.
# Runs as root. Exit code not 0: slurmd drains the node, and the sentence is in its log.
set -eu
folder=${HARPCTL_FOLDER:-/opt/harp}
if ! [ -r "$folder/lib/libnccl-net-harp.so" ] || ! [ -r "$folder/nccl.conf" ]; then
  echo "HARP is not in $folder of this node; run: harpctl node" >&2
  exit 1
fi
exec "${HARPCTL:-harpctl}" validate >&2
