#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Slurm TaskProlog (slurm.conf: TaskProlog=): every task gets HARP's environment profile. What the user has set stays.
folder=${HARPCTL_FOLDER:-/opt/harp}
[ -r "$folder/nccl.conf" ] || exit 0
while IFS= read -r line; do
  case $line in
    [A-Z]*=*)
      name=${line%%=*}
      printenv "$name" >/dev/null || printf 'export %s\n' "$line"
      ;;
  esac
done <"$folder/nccl.conf"
