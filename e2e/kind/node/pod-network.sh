#!/bin/sh
# The nodes' pods in place of kindnet: each node has 10.244.<last number of its address>.0/24, and a route to each other's.
# Docker gives the lowest addresses first, so eight nodes are all found; where nobody is, the route leads nowhere.
set -eu
address=$(ip -4 -o address show dev eth0 | sed -n 's/.* inet \([0-9.]*\).*/\1/p')
network=${address%.*}
own=${address##*.}
mkdir -p /etc/cni/net.d
cat >/etc/cni/net.d/10-pods.conflist <<END
{"cniVersion": "1.0.0", "name": "pods", "plugins": [
  {"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": false, "hairpinMode": true, "ipam": {
    "type": "host-local", "dataDir": "/run/cni", "ranges": [[{"subnet": "10.244.$own.0/24"}]],
    "routes": [{"dst": "0.0.0.0/0"}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}
END
for other in 2 3 4 5 6 7 8 9; do
  [ "$other" = "$own" ] || ip route replace "10.244.$other.0/24" via "$network.$other"
done
