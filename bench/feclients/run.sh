#!/bin/bash
# Runs an FE and two BEs, and the reference's statements against them with the
# clients that people have: run.sh path/to/headstart. What is not installed here is
# fetched by the package managers that are; what can't be is said and left out.
set -euo pipefail
bin=$(realpath "$1")
here=$(dirname "$(realpath "$0")")
dir=$(mktemp -d)
pids=()
trap 'kill "${pids[@]}" 2>/dev/null; wait; rm -rf "$dir"' EXIT

start() { # start NAME ROLE: waits for the ready line of a node
  "$bin" "$2" -conf "$dir/$1.conf" >"$dir/$1.out" 2>"$dir/$1.err" &
  pids+=($!)
  for _ in $(seq 100); do
    grep -q '"ready"' "$dir/$1.out" && return
    sleep 0.1
  done
  cat "$dir/$1.err" >&2
  exit 1
}
port() { sed -nE "s/.*\"$2\":([0-9]+).*/\1/p" "$dir/$1.out"; }

printf 'host = 127.0.0.1\nhttp_port = 0\nrpc_port = 0\nquery_port = 0\nmeta_dir = %s\n' "$dir/meta" >"$dir/fe.conf"
start fe fe
for be in be1 be2; do
  cat >"$dir/$be.conf" <<CONF
host = 127.0.0.1
webserver_port = 0
brpc_port = 0
s3_port = 0
s3_port = -1
fe_endpoints = 127.0.0.1:$(port fe rpc_port)
heartbeat_interval_ms = 50
compute_group_id = cg_write_01
compute_group_name = write_group
cloud_unique_id = 1:xxx:yyy
s3_endpoint = http://127.0.0.1:1
s3_bucket = b
s3_access_key = a
s3_secret_key = b
enable_file_cache = false
CONF
  start $be be
done
sleep 1 # until both are registered
at="127.0.0.1 $(port fe query_port)"
failed=0
try() { # try NAME COMMAND…: what exits with 77 was not possible here
  local code=0
  "${@:2}" || code=$?
  case $code in
  0) ;;
  77) echo "$1: not here" ;;
  *) echo "$1: FAILED" && failed=1 ;;
  esac
}

mariadb_client() {
  command -v mariadb >/dev/null || return 77
  local m=(mariadb --no-defaults -h 127.0.0.1 -P "${at#* }" -u root)
  "${m[@]}" -e 'SHOW BACKENDS\G' | grep -qF 'Tag: {"cloud_unique_id" : "1:xxx:yyy", "compute_group_id" : "cg_write_01", "compute_group_name" : "write_group", "compute_group_status" : "NORMAL", "location" : "default"}' || return 1
  [ "$("${m[@]}" -N -e "SHOW BACKEND CONFIG LIKE 'enable_cache_read_from_peer'" | cut -f3-6 | sort -u)" = "$(printf 'enable_cache_read_from_peer\tfalse\tbool\ttrue')" ] || return 1
  "${m[@]}" --version
}
pymysql() {
  python3 -m venv "$dir/venv" >/dev/null 2>&1 && "$dir/venv/bin/pip" install -q PyMySQL==1.1.1 2>/dev/null || return 77
  "$dir/venv/bin/python" "$here/client.py" $at
}
mysql2() {
  command -v npm >/dev/null && npm install --silent --prefix "$dir" mysql2@3.11.0 >/dev/null 2>&1 || return 77
  NODE_PATH="$dir/node_modules" node "$here/client.js" $at
}
connectorj() {
  command -v mvn >/dev/null && command -v javac >/dev/null || return 77
  mvn -q dependency:copy -Dartifact=com.mysql:mysql-connector-j:9.1.0 -DoutputDirectory="$dir/jars" >/dev/null 2>&1 || return 77
  javac -d "$dir/classes" "$here/Client.java" && java -cp "$dir/classes:$dir/jars/*" Client $at
}
try "MariaDB's client" mariadb_client
try PyMySQL pymysql
try mysql2 mysql2
try Connector/J connectorj
exit $failed
