#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# enroot hook: HARP of the host in every container. Copy it to /etc/enroot/hooks.d/50-harp.sh, executable.
# A container that brings a setting of its own keeps it; HARP_DISABLE=1 in its environment leaves HARP out.
set -eu
folder=${HARPCTL_FOLDER:-/opt/harp}
[ -r "$folder/nccl.conf" ] || exit 0
! grep -qx 'HARP_DISABLE=1' "$ENROOT_ENVIRON" || exit 0
printf '%s %s none x-create=dir,bind,ro,nosuid,nodev 0 0\n' "$folder" "$folder" >>"$ENROOT_MOUNTS"
while IFS= read -r line; do
  case $line in
    [A-Z]*=*) grep -q "^${line%%=*}=" "$ENROOT_ENVIRON" || printf '%s\n' "$line" >>"$ENROOT_ENVIRON" ;;
  esac
done <"$folder/nccl.conf"
