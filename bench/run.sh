#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `make bench`: instructions per hook, attach times, the agent's Allocate. Usage: run.sh BUILD
set -eu
here=$(cd "$(dirname "$0")" && pwd)
code=0
"$here/callgrind.sh" "${1:-build}" || code=1
"$here/attach.sh" "${1:-build}" || code=1
"${1:-build}/bench/bench_agent_allocate" "${1:-build}/bench/agent_allocate.json" || code=1
"$here/agent_idle.py" "${1:-build}" "${1:-build}/bench/agent_idle.json" || code=1
"${1:-build}/bench/bench_controller" "${1:-build}/bin/sluice-controller" "${1:-build}/bench/controller.json" || code=1
exit $code
