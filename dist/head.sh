#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
trap 'echo "harp_setup: the download is not complete. Nothing was changed." >&2; exit 1' EXIT # until harp_main
# HARP @VERSION@ for @ARCH@: the host tool `harpctl`, all that it needs, and the plugin, in one file.
#
#   curl -s -L URL/harp_setup.sh | bash                    prepares this host: `harpctl setup --yes`
#   curl -s -L URL/harp_setup.sh | bash -s -- --gpus 4     the same with options
#   bash harp_setup.sh COMMAND ...                         any command of harpctl, such as doctor
#   bash harp_setup.sh uninstall [--root DIR]              removes the tool (after `harpctl rollback`)
#
# Above the last line of text there are functions only, and an archive follows it, which is checked before
# anything of it is used: a download that was cut off anywhere changes nothing.

harp_tools=/usr/local/tfabric/tools/harpctl
harp_program=/usr/local/bin/harpctl
harp_id=@ID@
harp_arch=@ARCH@

harp_die() {
  printf 'harp_setup: %s\n' "$1" >&2
  shift
  [ $# -eq 0 ] || printf '  %s\n' "$@" >&2
  exit 1
}

# harp_need TOOL...: refuses where a tool is missing, before anything is written.
harp_need() {
  for harp_tool in "$@"; do
    command -v "$harp_tool" >/dev/null 2>&1 ||
      harp_die "this host has no '$harp_tool'." "Install it; the packages are called tar, gzip and coreutils."
  done
}

# harp_scratch: makes a folder that is gone afterwards, where programs may be run (/tmp may forbid that).
harp_scratch() {
  for harp_base in "${TMPDIR:-/tmp}" /var/tmp "${HOME:-/root}"; do
    harp_work=$(mktemp -d "$harp_base/harp_setup.XXXXXX" 2>/dev/null) || continue
    trap 'rm -rf -- "$harp_work"' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    printf '#!/bin/sh\n' >"$harp_work/probe" && chmod 700 "$harp_work/probe" &&
      "$harp_work/probe" 2>/dev/null && return 0
    rm -rf -- "$harp_work"
  done
  harp_die "no folder to work in: ${TMPDIR:-/tmp}, /var/tmp and ${HOME:-/root} can't be written or run programs from." \
    "Name one: TMPDIR=/some/folder bash harp_setup.sh"
}

# harp_receive FILE LENGTH SHA256: gets the archive, from the script's own file or the rest of its input.
harp_receive() {
  if [ -n "$1" ]; then
    tail -c "$2" -- "$1" >"$harp_work/archive"
  else
    head -c "$2" >"$harp_work/archive"
  fi || harp_die "$harp_work can't hold the archive of $2 bytes." "Make room there, or name another folder: TMPDIR=/some/folder"
  harp_sum=$(sha256sum <"$harp_work/archive")
  [ "${harp_sum%% *}" = "$3" ] ||
    harp_die "the download is not complete, or damaged: $(wc -c <"$harp_work/archive") of $2 bytes came. Nothing was changed." \
      "Fetch it again."
}

# harp_unpack FOLDER: unpacks the archive into a new folder, with this file beside it for other hosts.
harp_unpack() {
  mkdir -m 755 -- "$1" && tar -xzf "$harp_work/archive" -C "$1" --no-same-owner &&
    cat "$1/head.sh" "$harp_work/last" "$harp_work/archive" >"$1/harp_setup.sh" && rm "$1/head.sh"
}

# harp_install ROOT: puts the tool where it stays, in one step; a tool that is there and runs is left alone.
# Sets harp_fresh to its folder where it was not there before.
harp_install() {
  harp_home=$1$harp_tools/$harp_id
  "$harp_home/bin/harpctl" --version >/dev/null 2>&1 && return 0
  harp_new=$1$harp_tools/.new-$$
  find "$1$harp_tools" -maxdepth 1 -name '.new-*' -mmin +60 -exec rm -rf {} + 2>/dev/null # of one that was killed
  rm -rf -- "$harp_new"
  mkdir -p -- "$1$harp_tools" && harp_unpack "$harp_new" && { sync -f "$harp_new" 2>/dev/null || sync; } &&
    rm -rf -- "$harp_home" && mv -T -- "$harp_new" "$harp_home" && harp_fresh=$harp_home && return 0
  rm -rf -- "$harp_new"
  harp_die "the tool can't be put into $1$harp_tools." "Is there room, and is the file system writable?"
}

# harp_remove FOLDER: removes the folder of one tool or of all, and ours above it that are empty then.
harp_remove() {
  rm -rf -- "$1"
  rmdir "$harp_root$harp_tools" "$harp_root${harp_tools%/*}" "$harp_root${harp_tools%/*/*}" 2>/dev/null
}

# harp_uninstall [--root DIR]: removes the tool, unless setup's changes are there, which only the tool can undo.
harp_uninstall() {
  harp_root=''
  case ${1-} in
    '') [ "$(id -u)" -eq 0 ] || harp_die "removing the tool needs root." ;;
    --root) harp_root=${2-} ;;
    --root=*) harp_root=${1#--root=} ;;
  esac
  harp_root=${harp_root%/}
  [ $# -eq 0 ] || [ -d "$harp_root" ] || harp_die "uninstall takes --root DIR, and nothing else."
  [ ! -L "$harp_root$harp_program" ] ||
    harp_die "$harp_root$harp_program is still there: this is still set up." "First: harpctl rollback${harp_root:+ --root $harp_root}"
  harp_remove "$harp_root$harp_tools"
  echo "harp_setup: removed $harp_root$harp_tools"
}

# harp_where ARGUMENT...: says with harp_stays whether the tool is to stay on the host, with harp_root below what.
harp_where() {
  harp_stays=no harp_root='' harp_command='' harp_before=''
  for harp_word in "$@"; do
    case $harp_word in
      --root=*) harp_root=${harp_word#--root=} ;;
      --dry-run | -h | --help | -H* | --hosts*) harp_command=look ;; # nothing is set up here
      -*) ;;
      *) [ -n "$harp_command" ] || harp_command=$harp_word ;;
    esac
    [ "$harp_before" != --root ] || harp_root=$harp_word
    harp_before=$harp_word
  done
  harp_root=${harp_root%/}
  [ "$harp_command" = setup ] && { [ "$(id -u)" -eq 0 ] || [ -n "$harp_root" ]; } && harp_stays=yes
  [ -z "$harp_root" ] || [ -d "$harp_root" ] || harp_stays=no
}

# harp_main FILE LENGTH SHA256 ARGUMENT...: FILE is empty where the script comes from a pipe.
harp_main() {
  trap - EXIT
  umask 022
  harp_file=$1 harp_length=$2 harp_sha=$3 harp_fresh=''
  shift 3
  if [ -z "${BASH_VERSION-}" ]; then
    [ -f "$0" ] && exec bash "$0" "$@"
    harp_die "this needs bash." "curl -s -L URL/harp_setup.sh | bash"
  fi
  [ -z "$harp_file" ] || [ -f "$harp_file" ] || harp_die "$harp_file is no file that can be read twice." "Save it first, or pipe it into bash."
  [ "$(uname -s) $(uname -m)" = "Linux $harp_arch" ] ||
    harp_die "this file is for Linux on $harp_arch; here it is $(uname -s) on $(uname -m)."
  [ "${1-}" != uninstall ] || { shift && harp_uninstall "$@" && return 0; }
  case ${1-} in
    '') set -- setup --yes ;;
    -h | --help | --version | --debug) ;;
    -*) set -- setup --yes "$@" ;;
  esac
  harp_need tar gzip head tail sha256sum mktemp wc cat
  harp_scratch
  harp_receive "$harp_file" "$harp_length" "$harp_sha"
  printf 'harp_main "${BASH_SOURCE-}" %s %s "$@"; exit $?\n' "$harp_length" "$harp_sha" >"$harp_work/last"
  harp_where "$@"
  if [ "$harp_stays" = yes ]; then
    harp_install "$harp_root"
  else
    harp_home=$harp_work/$harp_id
    harp_unpack "$harp_home" || harp_die "$harp_work has no room for the tool." "Name another folder: TMPDIR=/some/folder"
  fi
  rm -f -- "$harp_work/archive"
  [ -n "$harp_file" ] || [ "${1-}" = preflight ] || exec </dev/null # its part on a host is told what to probe
  "$harp_home/bin/harpctl" "$@"
  harp_code=$?
  # A setup that was refused changes nothing; one that began needs the tool, to be undone.
  [ "$harp_code" -eq 0 ] || [ -z "$harp_fresh" ] || [ -e "$harp_root/var/lib/harp" ] || harp_remove "$harp_fresh"
  return "$harp_code"
}

