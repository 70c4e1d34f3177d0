#!/usr/bin/env bash
# A real MariaDB for tests (Debian's package), on 127.0.0.1, with durable settings. Its user root needs no password.
#
#   mariadb.sh install CACHE           install what serve needs
#   mariadb.sh find CACHE              succeeds if it is there
#   mariadb.sh serve DIR PORT CACHE    make a server in DIR and serve it until standard input ends; then remove DIR.
#                                      Lines on standard input: kill (SIGKILL), start; each is answered with "ok".
set -euo pipefail

. "$(dirname "$0")/serving.sh"

start() {
  mariadbd --no-defaults --user="$(id -un)" --datadir="$DIR/data" --bind-address=127.0.0.1 --port="$PORT" --socket="$DIR/m.sock" \
    --pid-file="$DIR/m.pid" --innodb-log-file-size=48M --innodb-buffer-pool-size=256M --innodb-flush-log-at-trx-commit=1 \
    --skip-name-resolve --max-connections=400 >>"$DIR/log" 2>&1 </dev/null &
  server=$!
  until mariadb-admin --no-defaults --socket="$DIR/m.sock" -uroot ping >/dev/null 2>&1; do
    kill -0 $server || return 1
    sleep 0.05
  done
}

# The folder of an empty server takes a second to make, so it is kept in CACHE.
template() {
  local folder=$1/mariadb
  [ -d "$folder" ] && return
  local new
  mkdir -p "$1"
  new=$(mktemp -d "$1/mariadb-XXXXXX")
  mariadb-install-db --no-defaults --user="$(id -un)" --datadir="$new" --auth-root-authentication-method=normal \
    --skip-test-db --innodb-log-file-size=48M >&2
  mv -T "$new" "$folder" 2>/dev/null || rm -rf "$new" # another process was first
}

case $1 in
install)
  command -v mariadbd >/dev/null && exit
  . "$(dirname "$0")/downloads.sh"
  again apt-get update -qq
  DEBIAN_FRONTEND=noninteractive again apt-get -o DPkg::Lock::Timeout=300 install -y -qq --no-install-recommends mariadb-server >/dev/null
  ;;
find)
  command -v mariadbd
  ;;
serve)
  DIR=$2 PORT=$3
  serve "$4" "$4/mariadb"
  ;;
esac
