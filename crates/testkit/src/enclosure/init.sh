# shellcheck shell=bash
# The first process of the namespaces: when it ends, the kernel ends all others. Bash reaps the orphans it inherits.
# Arguments: state directory, control group, "bound" (lives until standard input ends) or "free" (until it is killed).
set -e
state=$1 group=$2 lifetime=$3

# unshare made every mount private. A kubelet wants them shared, which from here on means shared among these processes only.
mount --make-rshared /
mount -t tmpfs run /run
mkdir -p "$state"/var/{upper,work} "$state"/kubelet "$state"/log
mount -t overlay var -o "lowerdir=/var,upperdir=$state/var/upper,workdir=$state/var/work" /var
mkdir -p /var/lib/kubelet
# A bind mount to the same path, so that the tests can look into volumes from outside.
mount --bind "$state/kubelet" /var/lib/kubelet
hostname plimsoll
ip link set lo up
echo 1 >/proc/sys/net/ipv4/ip_forward
if [[ -e /sys/fs/cgroup/cgroup.controllers ]]; then mkdir -p "/sys/fs/cgroup/$group"; else
  for controller in /sys/fs/cgroup/*/; do mkdir -p "$controller/$group"; done
fi

if [[ $lifetime == free ]]; then mkfifo "$state/hold" && exec 0<>"$state/hold"; fi
touch "$state/up"
set +e
while read -r _; do :; done
