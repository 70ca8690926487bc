# Gives containerd the images of a directory before it ever runs as a node's: contents only, unpacked at first use.
set -eu
cat >/tmp/preload.toml <<'END'
version = 3
disabled_plugins = ["io.containerd.cri.v1.images", "io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri"]
END
containerd --config /tmp/preload.toml --log-level error &
until ctr --connect-timeout 1s version >/dev/null 2>&1; do
  kill -0 $! || exit 1
done
for archive in "$1"/*.tar; do
  ctr --namespace k8s.io images import --label io.cri-containerd.pinned=pinned --all-platforms --no-unpack --digests "$archive"
done
kill $!
wait $! || :
rm -rf /tmp/preload.toml /run/containerd
