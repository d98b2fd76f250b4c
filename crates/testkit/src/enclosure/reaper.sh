# shellcheck shell=bash
# Outside the namespaces: starts them, and cleans up behind them however they end.
# Arguments: state directory, slot, the text of init.sh, "bound" or "free". Standard input: see init.sh.
trap '' INT TERM HUP
state=$1 slot=$2 init=$3 lifetime=$4

unshare --mount --net --pid --uts --ipc --fork --kill-child --mount-proc bash -c "$init" init "$state" "plimsoll-$slot" "$lifetime"

# The kernel has ended every process of the namespaces and dropped their mounts; what is left are plain files. Control groups
# can only be removed once the last dead process has left them.
for _ in {1..100}; do
  mapfile -t groups < <(find /sys/fs/cgroup -maxdepth 2 -type d -name "plimsoll-$slot" 2>/dev/null)
  ((${#groups[@]})) || break
  find "${groups[@]}" -depth -type d -exec rmdir {} + 2>/dev/null || sleep 0.1
done
rm -rf -- "$state"
