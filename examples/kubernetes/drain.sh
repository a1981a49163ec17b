#!/bin/bash
# Runs when the pod is to end, and ends when nothing is in flight: Envoy itself would cut it off.
admin() {
  exec 3<>/dev/tcp/127.0.0.1/9901
  printf '%s %s HTTP/1.1\r\nhost: admin\r\nconnection: close\r\n\r\n' "$1" "$2" >&3
  cat <&3
  exec 3>&-
}

# Readiness fails from here on, and clients are asked to close their connections.
admin POST /healthcheck/fail

# Until every node has heard that the pod is gone.
sleep "${1:-5}"

until [[ $(admin GET '/stats?filter=^http.traffic.downstream_rq_active$') == *active:\ 0* ]]; do
  sleep 1
done
