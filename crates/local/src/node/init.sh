# shellcheck shell=sh
# The first process of a container. Arguments: how to bind, root, working directory; then steps of three words
# (ro|rw|link, source, path), `--`, and the command.
set -e; path=$PATH; PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
bind=$1 root=$2 work=$3; shift 3
mount -t tmpfs -o mode=755 pod "$root"
mkdir -m 1777 "$root/tmp"; mkdir "$root/proc" "$root/dev" "$root/sys" "$root/run"
mount -t proc proc "$root/proc"; mount --rbind /dev "$root/dev"; mount --rbind -o ro /sys "$root/sys"
while [ "$1" != -- ]; do
  to=$root$3
  if [ "$1" = link ]; then mkdir -p "${to%/*}"; ln -s "$2" "$to"
  else
    if [ -d "$2" ]; then mkdir -p "$to"; else mkdir -p "${to%/*}"; [ -e "$to" ] || : >"$to"; fi
    mount "$bind" -o "$1" "$2" "$to"
  fi
  shift 3
done
shift; mkdir -p "$root$work" 2>/dev/null || :
chroot=$(command -v chroot); trap 'exit 137' HUP
# A container whose program is missing must never be reported as running.
# shellcheck disable=SC2016 # The inner shell expands $1.
PATH=$path "$chroot" "$root" /usr/bin/env -C "$work" -- /bin/sh -c 'command -v "$1" >/dev/null' sh "$1" ||
  { echo "exec: \"$1\": no such file or directory, or not in PATH" >&2; exit 128; }
echo ready; exec 3<&0 </dev/null 2>&1
PATH=$path "$chroot" "$root" /usr/bin/env --default-signal -C "$work" -- "$@" 3<&- &
main=$!
(while read -r signal; do kill -s "$signal" "$main"; done; kill -s HUP 1) <&3 3<&- >/dev/null 2>&1 &
exec 3<&-; set +e; wait "$main"; exit $?
