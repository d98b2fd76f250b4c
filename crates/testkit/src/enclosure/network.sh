# shellcheck shell=bash
# Connects the namespaces with the machine. Arguments: slot, process in the namespaces, our address, theirs, the pods' range.
set -e
slot=$1 init=$2 host=$3 node=$4 pods=$5
inside() { nsenter --target "$init" --net -- "$@"; }

# The kernel takes down the network of a run that has just ended in its own time.
ip link delete "plimsoll$slot" 2>/dev/null || true
ip link add "plimsoll$slot" type veth peer name eth0 netns "$init"
ip address add "$host/30" dev "plimsoll$slot"
ip link set "plimsoll$slot" up
inside ip address add "$node/30" dev eth0
inside ip link set eth0 up
inside ip route add default via "$host"
ip route replace "$pods" via "$node"
