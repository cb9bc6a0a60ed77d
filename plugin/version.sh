#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Prints the version of this source tree, as VERSION-COMMITS-gHASH[-dirty]: commits since the last tag v*, or since the
# one that set the version where there is no tag; at a tag VERSION alone. Of an archive that git made it is VERSION-gHASH; of other copies VERSION.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P)
top=${here%/*}
archived='$Format:%h$' # replaced by git archive
version=$(sed -n 's/^__version__ = "\(.*\)"/\1/p' "$top/harpctl/__init__.py")
GIT_OPTIONAL_LOCKS=0
export GIT_OPTIONAL_LOCKS

git_here() { git -c safe.directory="$top" -C "$top" "$@" 2>/dev/null; }

if [ "$(git_here rev-parse --show-toplevel)" = "$top" ] &&
  described=$(git_here describe --always --tags --match 'v[0-9]*' --abbrev=7 --dirty); then
  case $described in
    v*) echo "${described#v}" ;;
    *)
      set_by=$(git_here log -1 --format=%H -G'^__version__ = ' -- harpctl/__init__.py)
      echo "$version-$(git_here rev-list --count HEAD ${set_by:+"^$set_by"})-g$described"
      ;;
  esac
else
  case $archived in
    \$*) echo "$version" ;;
    *) echo "$version-g$archived" ;;
  esac
fi
