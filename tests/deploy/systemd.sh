#!/bin/bash
# The unit of deploy/systemd with a real node under a real systemd, in a container: make test-systemd.
# Needs root, a Docker engine, debootstrap, and the environment .venv. About two minutes; SYSROOT names a root that is there already.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
name=vfl-systemd-$$ work=$(mktemp -d)
root=${SYSROOT:-build/systemd/root}
end() { docker rm -f "$name" >/dev/null 2>&1 || true; docker rmi "$name" >/dev/null 2>&1 || true; rm -rf "$work"; }
trap end EXIT
fail() { echo "FAILED: $*" >&2; in_it journalctl --no-pager -n 30 -o cat >&2 || true; exit 1; }
in_it() { docker exec "$name" "$@"; }
show() { in_it systemctl show vfl-node@clinic --value -p "$1"; }
until_it_is() { # property, value, seconds
  for _ in $(seq "$3"); do [ "$(show "$1")" = "$2" ] && return; sleep 1; done; fail "$1 is $(show "$1"), not $2"
}

if [ ! -x "$root/sbin/init" ]; then
  mkdir -p "$root"
  debootstrap --variant=minbase --include=systemd,systemd-sysv,dbus,procps,libgomp1,libsqlite3-0 bookworm "$root" ${MIRROR:-} >"$work/debootstrap.log"
fi
tar -C "$root" -c . | docker import - "$name" >/dev/null
python=$(.venv/bin/python -c 'import sys; print(sys.base_prefix)')
site=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
docker run -d --name "$name" --cap-add SYS_ADMIN --security-opt seccomp=unconfined --network none \
  --tmpfs /run --tmpfs /run/lock --tmpfs /tmp -v /sys/fs/cgroup:/sys/fs/cgroup:rw \
  -v "$python:/opt/python:ro" -v "$(readlink -f "$site"):/opt/site:ro" -v "$PWD/vfl_node:/opt/src/vfl_node:ro" \
  "$name" /sbin/init >/dev/null
for _ in $(seq 30); do
  state=$(in_it systemctl is-system-running 2>&1 || true)
  case $state in running | degraded) break ;; esac
  sleep 1
done
echo "systemd in the container: $state"

in_it groupadd --gid 10001 vfl
in_it useradd --uid 10001 --gid vfl --no-create-home --home-dir /nonexistent vfl
in_it mkdir -p /opt/vfl-node/bin
cat >"$work/vfl-node" <<'RUN'
#!/bin/sh
PYTHONPATH=/opt/src:/opt/site LD_LIBRARY_PATH=/opt/python/lib PYTHONDONTWRITEBYTECODE=1 exec /opt/python/bin/python3 -m vfl_node "$@"
RUN
chmod 755 "$work/vfl-node"
docker cp -q "$work/vfl-node" "$name:/opt/vfl-node/bin/vfl-node"
for unit in deploy/systemd/*.service deploy/systemd/*.timer; do docker cp -q "$unit" "$name:/etc/systemd/system/"; done
# a shorter time, so that the test need not wait a minute; and what the node may write, tried by a command in its place
cat >"$work/trial.conf" <<'UNIT'
[Service]
WatchdogSec=10
ExecStartPost=/bin/sh -c 'touch "$STATE_DIRECTORY/x" && ! touch /etc/vfl-node/%i/x'
UNIT
in_it mkdir /etc/systemd/system/vfl-node@.service.d
docker cp -q "$work/trial.conf" "$name:/etc/systemd/system/vfl-node@.service.d/"
in_it sh -c '/opt/vfl-node/bin/vfl-node init clinic --role active /etc/vfl-node/clinic >/dev/null && cd /etc/vfl-node/clinic &&
  sed -i -e "s#^state_dir:.*#state_dir: /var/lib/vfl-node/clinic/state\npeers_dir: /var/lib/vfl-node/clinic/peers#" -e "/^data:/,/^$/d" node.yaml &&
  chown -R vfl: /etc/vfl-node/clinic && chmod 0400 keys/*.key'
in_it systemctl daemon-reload

in_it systemctl start vfl-node@clinic || fail "it does not start"
until_it_is ActiveState active 5
until_it_is StatusText "clinic (active) is up" 5
echo "active, READY and STATUS have arrived: $(show StatusText)"
pid=$(show MainPID)
[ "$(in_it stat -c '%a %U' /var/lib/vfl-node/clinic /var/lib/vfl-node/clinic/state | sort -u)" = "700 vfl" ] || fail "the state is not private"
docker exec -u vfl "$name" touch /etc/vfl-node/clinic/y || fail "the control: its settings cannot be written outside the unit either"
in_it cat "/proc/$pid/limits" | grep -q '^Max core file size  *0  *0 ' || fail "a core file may be written"
echo "state 0700 of vfl, /etc read-only, no core files"
in_it systemctl kill -s USR1 vfl-node@clinic
sleep 2
in_it journalctl -u vfl-node@clinic --no-pager -o cat | grep -q 'the log has every line now' || fail "SIGUSR1 changes nothing"
in_it systemctl reload vfl-node@clinic
sleep 2
in_it journalctl -u vfl-node@clinic --no-pager -o cat | grep -q 'policy in force' || fail "the policy is not read again"
sleep 12
[ "$(show NRestarts)" = 0 ] || fail "the watchdog ended a node that lives"
if in_it /opt/vfl-node/bin/vfl-node backup --help >/dev/null 2>&1; then
  in_it systemctl start vfl-node-backup@clinic || fail "there is no backup"
  [ "$(in_it sh -c 'stat -c "%a %U" /var/lib/vfl-node-backups/clinic/clinic-*.tar')" = "600 vfl" ] || fail "the backup is not private"
  echo "a backup of the running node, 0600"
else
  echo "-- skipped: this release has no vfl-node backup"
fi
in_it kill -STOP "$pid"
until_it_is NRestarts 1 40
until_it_is ActiveState active 60
echo "a stopped process was started anew once"
in_it systemctl stop vfl-node@clinic
until_it_is ActiveState inactive 25
[ "$(show Result)" = success ] || fail "it ended with $(show Result)"
echo "an orderly end within its time"
