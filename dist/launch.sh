#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs harpctl from the folder that harp_setup.sh made, by the Python in it, or else by one of the host's.
home=$(readlink -f -- "$0")
home=${home%/bin/harpctl}
# Not HARP_...: those are the variables of the plugin.
export HARPCTL_HOME="$home" HARPCTL_FILE="$home/harp_setup.sh" HARPCTL_PROGRAM="${HARPCTL_PROGRAM:-/usr/local/bin/harpctl}"

if [ "$(uname -m)" != @ARCH@ ]; then
  printf 'harpctl: this package is for @ARCH@, and this host is %s.\n  Install the one for %s.\n' "$(uname -m)" "$(uname -m)" >&2
  exit 4
fi

# fits PYTHON: says whether it runs here and has its compiled modules in this folder.
fits() {
  tag=$("$1" -I -S -c 'import sys; print("cp%d%d" % sys.version_info[:2])' 2>/dev/null) && [ -d "$home/ext/$tag" ]
}

for python in "$home/python/bin/python3" python3 python3.14 python3.13 python3.12 python3.11 python3.10; do
  fits "$python" && exec "$python" -I -S -B "$home/run.py" "$@"
done

found=$(python3 -V 2>&1) || found='no python3'
wanted=$(ls "$home/ext" | sed 's/cp3/3./' | tr '\n' ' ')
printf 'harpctl: it needs one of Python %sand this host has %s.\n' "$wanted" "$found" >&2
[ ! -e "$home/python" ] || printf '  The Python it brought does not run here: that needs glibc 2.17 or newer, and a folder programs may be run from.\n' >&2
. /etc/os-release 2>/dev/null
case " ${ID-} ${ID_LIKE-} " in
  *' ubuntu '* | *' debian '*) printf '  Install one: apt-get install python3.11 (where the distribution is older than that, from a newer one)\n' ;;
  *' rhel '* | *' centos '* | *' fedora '* | *' tencentos '*) printf '  Install one: dnf install python3.11\n' ;;
  *) printf '  Install one with the means of this distribution.\n' ;;
esac >&2
exit 4
