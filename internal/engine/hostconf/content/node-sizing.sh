#!/bin/sh
# Writes /etc/node-sizing.env, which kubelet.service reads: what the system
# keeps for itself. With NODE_SIZING_ENABLED=true it grows with the machine,
# otherwise the configured values are taken as they are.
set -eu

memory=${SYSTEM_RESERVED_MEMORY:-1Gi}
cpu=${SYSTEM_RESERVED_CPU:-500m}
storage=${SYSTEM_RESERVED_ES:-1Gi}

if [ "${NODE_SIZING_ENABLED:-false}" = true ]; then
	# A quarter of the first 4 GiB, a fifth of the next 4, a tenth of the next
	# 8, and six hundredths of the next 112, in MiB.
	total=$(awk '/^MemTotal:/ { print int($2 / 1024) }' /proc/meminfo)
	memory=$(awk -v m="$total" 'BEGIN {
		split("4096 4096 8192 114688", size); split("25 20 10 6", share)
		for (i = 1; i <= 4 && m > 0; i++) { n = m < size[i] ? m : size[i]; r += n * share[i] / 100; m -= n }
		r += m * 2 / 100
		printf "%dMi", r
	}')
	cores=$(grep -c ^processor /proc/cpuinfo)
	cpu=$(awk -v c="$cores" 'BEGIN { r = 60 + (c > 1 ? 10 : 0) + (c > 4 ? 10 : c > 2 ? (c - 2) * 5 : 0); if (c > 4) r += (c - 4) * 2.5; printf "%dm", r < 500 ? 500 : r }')
fi

umask 022
printf 'SYSTEM_RESERVED_MEMORY=%s\nSYSTEM_RESERVED_CPU=%s\nSYSTEM_RESERVED_ES=%s\n' "$memory" "$cpu" "$storage" >/etc/node-sizing.env.new
mv /etc/node-sizing.env.new /etc/node-sizing.env
