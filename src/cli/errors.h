/* SPDX-License-Identifier: Apache-2.0 */
/* The messages of this room: see base/errtable.h. */
/* clang-format off */
#ifndef SLUICE_CLI_ERRORS_H
#define SLUICE_CLI_ERRORS_H

#include "base/errtable.h"

SL_ERROR_PART("command-line");

SL_ERROR(OPTION_NEEDS_VALUE, "--%s needs a value: --%s %s",
    "the command line is not complete or not correct", "`sluice VERB --help` lists the options of a verb");
SL_ERROR_ALSO(VERB_UNKNOWN_NEAR, "unknown verb \"%.60s\": did you mean \"%s\"?");
SL_ERROR_ALSO(VERB_UNKNOWN, "unknown verb \"%.60s\": `sluice --help` lists the verbs");
SL_ERROR_ALSO(OPTION_BEFORE_VERB,
    "unknown option \"%.60s\" before the verb: write `sluice VERB %.60s`, or see `sluice --help`");
SL_ERROR_ALSO(OPTION_UNKNOWN_NEAR, "unknown option \"%.60s\": did you mean \"--%s\"?");
SL_ERROR_ALSO(OPTION_UNKNOWN, "unknown option \"%.60s\": `sluice %s --help` lists the options");
SL_ERROR_ALSO(DIR_TWICE, "--dir is given twice: give one directory");
SL_ERROR_ALSO(OPTION_TAKES_NO_VALUE, "--%s takes no value");
SL_ERROR_ALSO(OPTION_EMPTY_VALUE, "--%s= has no value: write --%s%s");
SL_ERROR_ALSO(OPTION_TWICE, "--%s is given twice: give it once");
SL_ERROR_ALSO(CONFIG_EXTRA_WORD, "config: \"%.100s\" is an extra word: name one file");
SL_ERROR_ALSO(EXTRA_WORD, "\"%.100s\" is an extra word: `sluice %s` takes options only");
SL_ERROR_ALSO(ARBITER_NEEDS_NUMBERS, "arbiter: --idle-exit and --ready-fd need a number");
SL_ERROR_ALSO(ARBITER_WORD,
    "arbiter: unexpected word \"%.60s\": write `sluice arbiter --system`, or `sluice arbiter check FILE`");
SL_ERROR_ALSO(ARBITER_CONFIG, "arbiter: --config belongs to --system: add it, or leave --config out");
SL_ERROR(SET_NOTHING, "set: nothing to change: give --memory, --cores or --priority",
    "`sluice set` has a name and no new value", "for example `sluice set NAME --memory 10Gi`");
SL_ERROR(CHANGE_NO_NAME, "%s: no tenant is named: write %s",
    "`sluice set`, `pause` and `resume` change one running tenant", "name one tenant of `sluice status`");
SL_ERROR_ALSO(CHANGE_TWO_NAMES, "%s: only one tenant can be named: write %s");
SL_ERROR(CHANGE_NAME_LONG, "%s: no tenant is named \"%.200s\"; `sluice status` lists them",
    "no tenant has such a long name", "use a name that `sluice status` shows");
SL_ERROR(TENANT_NO_ARBITER,
    "%s, so there is no tenant \"%.100s\": if the tenant was started with --sim or --dir, give the same option here",
    "each directory has an arbiter and tenants of its own", "give the `--sim` or `--dir` of the `sluice run`");
SL_ERROR(STATUS_TWO_NAMES, "status: only one tenant can be named: write `sluice status NAME`",
    "`sluice status` shows all tenants, or one tenant in detail", "name one tenant, or none");
SL_ERROR(TENANT_UNKNOWN_NEAR, "no tenant is named \"%.200s\": did you mean \"%s\"? `sluice status` lists the tenants",
    "no tenant with this name runs, or it has ended", "use a name that `sluice status` shows");
SL_ERROR_ALSO(TENANT_UNKNOWN_HERE, "no tenant is named \"%.200s\": `sluice status` lists the tenants");
SL_ERROR(HISTORY_TWO_NAMES, "only one name can be given: write `sluice history NAME`",
    "`sluice history` shows all ended tenants, or those of one name", "one name, or none");
SL_ERROR(HISTORY_COUNT, "\"%.40s\" is not a number of tenants: write for example --last 10",
    "`--last` (`-n`) takes a whole number from 1", "`--last 10`");
SL_ERROR(SINCE_BAD, "\"%.40s\" is no time: write 30m, 2h or 1d (so long ago), 2026-11-17, or '2026-11-17 14:30'",
    "`--since` takes a time in the past, in one of these forms", "one of the forms in the message");
SL_ERROR_ALSO(SINCE_NO_DAY, "there is no time \"%.40s\": check the day and the hour");
SL_ERROR_ALSO(SINCE_FUTURE, "\"%.40s\" is in the future: name a time in the past");
SL_ERROR(HISTORY_NAME_NEAR, "no ended tenant is named \"%.100s\": did you mean \"%s\"? `sluice history` lists them",
    "no tenant of this name has ended, its entry is too old, or it belongs to another user",
    "a name that `sluice history` shows; `sluice status` shows tenants that run");
SL_ERROR_ALSO(HISTORY_NAME_UNKNOWN,
    "no ended tenant is named \"%.100s\": `sluice history` lists them, and `sluice status` those that run");
SL_ERROR(HISTORY_FORBIDDEN,
    "no arbiter is running, and only its user may read the history in %s: ask as that user or as root, or start the "
    "arbiter",
    "the file has the tenants of all users; a running arbiter shows each user their own",
    "`sudo sluice history`, or start the arbiter");
SL_ERROR(HISTORY_DAMAGED, "history: %u damaged lines are left out; the rest of %s/history is shown",
    "a remark: the arbiter was killed while it wrote, or another program changed the file",
    "nothing: the arbiter writes the file anew");
SL_ERROR(PROCESSES_UNTOLD,
    "the arbiter (process %d) is too old to list processes: a new one starts after all tenants have ended",
    "Sluice was installed again while the arbiter ran", "end the tenants; on a node, restart the agent");
SL_ERROR(PAUSE_OLD_ARBITER,
    "the running arbiter is older than this program and cannot pause a tenant: it is replaced when no tenant is left",
    "the arbiter was started by an earlier version", "end its tenants, or restart the arbiter; then pause again");
SL_ERROR(FORGET_USED, "%s: %u processes use it: end its pod first; `sluice status %s` shows them",
    "`sluice forget` for a tenant that runs", "delete the pod: its agent ends the promise then");
SL_ERROR_ALSO(FORGET_COMMAND, "%s is the tenant of a command: it ends with the command");
SL_ERROR_ALSO(FORGET_LEASE, "%s is a lease: `sluice lease delete %s` ends it");
SL_ERROR(TOP_NO_TERMINAL, "this is no terminal: `sluice top --once` prints one page",
    "input or output of `sluice top` is a file or a pipe", "`sluice top --once`, or `sluice status --json`");
SL_ERROR(TOP_TERMINAL_KIND, "this terminal cannot place its cursor: set TERM, or use `sluice status --watch`",
    "TERM is not set, is `dumb`, or names a terminal that this computer does not know",
    "`TERM=xterm-256color sluice top`, or `sluice status --watch`");
SL_ERROR(TOP_NO_NCURSES, "this sluice was built without ncurses: use `sluice top --once` or `sluice status --watch`",
    "libncurses-dev was missing when it was built", "install libncurses-dev and build again");
SL_ERROR(TOP_KEPT, "tenant %.60s belongs to a pod: end the pod",
    "the agent of the node keeps this tenant", "`kubectl delete pod`");
SL_ERROR(TOP_LEASE, "tenant %.60s is a lease: delete it with `sluice lease delete %.60s`",
    "a lease stays until somebody deletes it", "`sluice lease delete NAME`");
SL_ERROR(TOP_NO_STARTER, "the process that started tenant %.60s is gone: end its processes",
    "`sluice run` ended before the processes that it had started", "Enter shows the processes; `kill` ends them");
SL_ERROR(TOP_GONE, "tenant %.60s is gone",
    "the tenant ended meanwhile", "nothing");
SL_ERROR(CONFIG_NO_ACTION, "config: no action is given: write `sluice config check FILE`",
    "`sluice config` has one action, `check`", "`sluice config check FILE`");
SL_ERROR_ALSO(CONFIG_NO_FILE, "config: no file is named: write `sluice config check FILE`, or - for standard input");
SL_ERROR(LEASE_NO_ACTION, "no action is given: write `sluice lease create NAME`, `list` or `delete NAME`",
    "`sluice lease` has three actions", "`sluice lease --help`");
SL_ERROR_ALSO(LEASE_ACTION_NEAR, "unknown action \"%.40s\": did you mean \"%s\"?");
SL_ERROR_ALSO(LEASE_ACTION_UNKNOWN, "unknown action \"%.40s\": write create, list or delete");
SL_ERROR_ALSO(LEASE_NO_NAME, "no lease is named: write `sluice lease %s NAME`");
SL_ERROR_ALSO(LEASE_EXTRA_WORD, "\"%.40s\" is an extra word: write `sluice lease %s%s`");
SL_ERROR_ALSO(LEASE_OPTION, "--%s works with `sluice lease %s` only: omit the option");
SL_ERROR(SPIN_BY_HAND, "spin: only `sluice doctor` may start `sluice spin`",
    "`sluice spin` was started by hand", "start `sluice doctor`");
SL_ERROR(OUTPUT_LOST, "cannot write the output: is the disk full, or did its reader end?",
    "the disk is full, or the program that reads the output ended", "make room, or read all of the output");
SL_ERROR_ALSO(OUTPUT_REFUSED, "cannot write the output: %s");

SL_ERROR_PART("start");

SL_ERROR(RUN_NO_COMMAND, "run: no command is given: write sluice run [OPTIONS] -- COMMAND",
    "`sluice run` has nothing after its options", "write the command after `--`");
SL_ERROR(COMMAND_NOT_FOUND, "%s: command not found",
    "no folder of PATH has the command (exit code 127)", "check the spelling, or give the full path");
SL_ERROR(RUN_NO_ROOM, "run: %s; add --wait to start when there is room",
    "what was asked for is not left now; the reason is in the message",
    "`sluice run --wait`, or as the first part of the message says");
SL_ERROR(RUN_WAITING, "waiting: place %u of %u; %s",
    "a remark, not an error: `--wait` was given, and there is no room yet", "nothing; Ctrl-C leaves the line");
SL_ERROR(RUN_WAIT_OVER, "%s (--wait=%s): place %u of %u; %s",
    "no room came in the time after `--wait=` (exit code 124)", "a longer time, or `--wait` without a time");
SL_ERROR(RUN_HELD_BY_CONTAINER,
    "run: the share of this container (%s) limits the command; the options given here have no effect",
    "the agent of the node gave this container a share, which comes before `sluice run`",
    "change the share where the pod asks for it");
SL_ERROR(RUN_ATTACH_HIDDEN,
    "cannot look for %s, and without that programs are refused the GPU: let every user pass through /run",
    "other users may not pass through `/run`, so a share that the agent gave could be hidden there",
    "`chmod 755 /run`");
SL_ERROR(RUN_MEMORY_ROUNDED, "run: memory is counted in units of %llu bytes: %s gets %llu of the %llu bytes asked for",
    "a remark, not an error: the amount was rounded down", "nothing");
SL_ERROR(RUN_ARBITER_LOST, "run: the arbiter ended and cannot be started again (%s); the command keeps its last limits",
    "the arbiter was killed, and a new one did not start for the reason in brackets",
    "remove the reason; the next `sluice` command starts the arbiter");
SL_ERROR(LIBSLUICE_MISSING,
    "libsluice.so is not installed with this program (looked for lib/sluice/libsluice.so beside %.200s): install it, "
    "or name it with --libsluice",
    "`libsluice.so` is not beside the program", "install both, or name the library with `--libsluice`");
SL_ERROR_ALSO(LIBSLUICE_PATH_LONG, "--libsluice %.60s... is too long for a path: name a shorter one");
SL_ERROR(LIBSLUICE_WRONG,
    "--libsluice %s is not a libsluice.so: name one that was built with this program, or omit the option",
    "the dynamic loader would ignore this file, and the command would run without limits",
    "name the library built with this program");
SL_ERROR(LIBSLUICE_PATH_CHARS,
    "the path %s contains a space or a ':', which LD_PRELOAD cannot express: install Sluice in another folder",
    "the dynamic loader splits its lists at spaces and colons", "install Sluice in another folder");
SL_ERROR_ALSO(SIM_PATH_CHARS,
    "the path of the simulated driver, %s, contains a ':', which LD_LIBRARY_PATH cannot express: move it");
SL_ERROR(SIM_MISSING,
    "the simulated driver is not installed with this program (looked for lib/sluice/sim beside %.200s): install the "
    "whole package",
    "the build or the package has no simulated driver", "`make core`, or install the whole package");
SL_ERROR(CONFIG_NOT_BUILT,
    "config: this build cannot read a node's configuration, because it was made without libyaml: use build/bin/sluice "
    "from `make build`",
    "`make core` and `make install` need no libyaml and therefore leave this out",
    "`make build`, then `build/bin/sluice config check`");

SL_ERROR(RUN_CONTAINER_CLIENT,
    "%s starts containers outside of `sluice run`, so nothing would be limited: make a lease with `sluice lease create "
    "NAME --memory AMOUNT`, then `%s run --device sluice.io/lease=NAME ...`",
    "limits of `sluice run` do not reach into containers",
    "`sluice lease`: [containers.md](containers.md); without `sluice run` the command starts without limits");
SL_ERROR(LEASE_NOT_BUILT,
    "this build cannot make leases for containers, because it was made without jansson: use build/bin/sluice from "
    "`make build`",
    "`make core` and `make install` need no jansson and therefore leave this out",
    "`make build`, then `build/bin/sluice lease`");

SL_ERROR_PART("cluster");

SL_ERROR(EXPLAIN_NO_POD, "explain: no pod is named: write `sluice explain pod NAME`",
    "the command line is not complete or not correct", "for example `kubectl sluice explain train-0 -n team`");
SL_ERROR_ALSO(EXPLAIN_EXTRA_WORD, "explain: \"%.100s\" is an extra word: name one pod");
SL_ERROR_ALSO(CLUSTER_ACTION, "cluster: write `sluice cluster nodes`, `pods` or `top`, not \"%.60s\"");
SL_ERROR_ALSO(CLUSTER_EXTRA_WORD, "cluster: \"%.100s\" is an extra word");
SL_ERROR(CLUSTER_NAME_BAD, "\"%.100s\" is not a name of Kubernetes: use small letters, digits, '-' and '.'",
    "a typing error; names go into the path of a request, so others are refused",
    "`kubectl get pods -A` lists the names");
SL_ERROR(NO_KUBECTL, "kubectl is not installed: install it, or put it into the PATH",
    "`sluice explain` reads the cluster through the user's own kubectl", "install kubectl");
SL_ERROR(KUBECTL_NOT_FOUND, "there is no %.200s in the cluster",
    "the name is wrong, or the pod is in another namespace, or its webhook refused it",
    "`kubectl get pods -A`; for a pod that was never made: `kubectl describe` of its Job or ReplicaSet");
SL_ERROR(KUBECTL_FORBIDDEN, "you may not read %.200s: %.200s",
    "the user of the kubeconfig has no such right", "ask the cluster's administrator, or use another context");
SL_ERROR(KUBECTL_FAILED, "kubectl says: %.300s",
    "kubectl could not reach the API server, or log in", "make `kubectl get pods` work first");
SL_ERROR_ALSO(KUBECTL_LARGE, "the answer for %.200s is larger than 512 MiB: name a namespace");
SL_ERROR_ALSO(KUBECTL_NO_JSON, "kubectl's answer for %.200s is no JSON");
SL_ERROR(CLUSTER_NOT_BUILT,
    "this build cannot read a cluster, because it was made without jansson: use build/bin/sluice from `make build`",
    "`make core` and `make install` need no jansson and therefore leave this out",
    "`make build`, then `build/bin/sluice explain`");

SL_ERROR_PART("leases");

SL_ERROR(LEASE_NAME_BAD,
    "lease name \"%.60s\" is not valid: use up to 40 letters, digits, '.', '_' and '-', with a letter or digit at both "
    "ends",
    "the name is part of the name of a CDI device and of a file", "another name, for example `train-1`");
SL_ERROR(LEASE_TAKEN,
    "there is a lease \"%s\" already: choose another name, change it with `sluice set %s`, or delete it with `sluice "
    "lease delete %s`",
    "two leases cannot have the same name", "as the message says");
SL_ERROR_ALSO(LEASE_NAME_TENANT, "a command of `sluice run` has the name \"%s\": choose another name");
SL_ERROR(LEASE_OF_OTHER,
    "the name \"%s\" is taken in %s by a lease of another arbiter (%s): choose another name, or another folder with "
    "--cdi-dir",
    "leases of simulated and of real GPUs, or of two `--dir`, put their specs into the same folder", "another name");
SL_ERROR(LEASE_UNKNOWN_NEAR, "no lease is named \"%.60s\": did you mean \"%s\"?",
    "no such lease was made, or it was made with another `--sim` or `--dir`",
    "`sluice lease list`, with the `--sim` and `--dir` of `sluice lease create`");
SL_ERROR_ALSO(LEASE_UNKNOWN,
    "no lease is named \"%.60s\": see `sluice lease list`, with the --sim or --dir of `sluice lease create`");
SL_ERROR(LEASE_IS_TENANT, "\"%s\" is a tenant, but not a lease: it ends with its command or its pod",
    "`sluice run` or the agent of the node made this tenant", "end the command or the pod");
SL_ERROR(LEASE_BUSY, "%u process%s lease %s: end the containers first, or delete it with --force",
    "a deleted lease reserves nothing, and new processes of its containers get no GPU",
    "end the containers; with `--force` their processes keep their last limits until they end");
SL_ERROR(LEASE_NO_CDI_DIR,
    "XDG_RUNTIME_DIR is not set, so there is no default folder for CDI specs: name one with --cdi-dir",
    "only root may write to `/var/run/cdi`", "`--cdi-dir FOLDER`, and name the folder to the container tool");
SL_ERROR_ALSO(LEASE_CDI_DIR_BAD,
    "the folder for CDI specs \"%.80s\" is not valid: use an absolute path of at most 399 bytes without spaces");
SL_ERROR(LEASE_CDI_DIR,
    "cannot write to the folder for CDI specs %s (%s): become root, or name another folder with --cdi-dir",
    "the folder belongs to another user, or its disk is full or read-only",
    "root, or `--cdi-dir FOLDER`, and name the folder to the container tool");
SL_ERROR(LEASE_HALF, "lease: \"%s\" has no CDI spec in %s, so no container can use it: it is removed",
    "`sluice lease` was killed while it made or deleted the lease, or somebody removed the spec (a remark)",
    "make the lease again, if it is needed");
SL_ERROR(LEASE_LOST,
    "lease: \"%s\" is lost, and containers cannot start with it: make it again with `sluice lease create %s`, or "
    "delete it",
    "the machine was restarted, or somebody removed the directory of the arbiter", "create or delete it");
SL_ERROR(LEASE_RESTARTED, "lease: the arbiter in %s had ended; it was started again, and the leases are in force",
    "the machine was restarted, or the arbiter was killed (a remark)", "nothing");

SL_ERROR_PART("choosing");

SL_ERROR(ARBITER_IS_SIMULATED,
    "the arbiter in %s has simulated GPUs: add --sim %s, or name another directory with --dir",
    "one directory serves either real or simulated GPUs", "give the same `--sim`, or another `--dir`");
SL_ERROR_ALSO(ARBITER_OTHER_GPUS,
    "the arbiter in %s serves other GPUs (%s) than the simulated %s: name another directory with --dir");
SL_ERROR_ALSO(ARBITER_REAL_GPUS,
    "the arbiter in %s serves real GPUs, not the simulated %s: name another directory with --dir");
SL_ERROR(GPU_LIST_EMPTY_NAME,
    "--gpu \"%.60s\" contains an empty name: write indices or UUIDs with commas between them, for example 0,1",
    "for example `--gpu 0,,1`", "indices or UUIDs with commas between them");
SL_ERROR(GPU_NAME_LONG, "--gpu \"%.100s\" is too long for the name of a GPU: write an index or a UUID",
    "neither an index nor a UUID", "`sluice status` shows the GPUs");
SL_ERROR(GPU_LIST_LONG, "--gpu names more than %d GPUs: name fewer GPUs",
    "the most GPUs that one tenant may use", "fewer GPUs");
SL_ERROR(GPU_NAMED_TWICE, "GPU %s is named twice: name each GPU once",
    "`--gpu 0,0`, or an index and the UUID of the same card", "name each GPU once");
SL_ERROR(GPU_AUTO_BESIDE, "--gpu \"%.60s\" names GPUs beside auto: write auto alone, or name the GPUs",
    "for example `--gpu auto,1`", "`--gpu auto`, with `--gpus 2` for several; or a list without `auto`");
SL_ERROR(GPUS_COUNT, "--gpus \"%.60s\" is not a number of GPUs: write a whole number from 1 to %d, for example 2",
    "not a number, or one that no tenant may have", "`--gpus 2`");
SL_ERROR(GPUS_CONTRADICT,
    "--gpus asks for %lu, but --gpu names %u: leave one of them out, or choose among some GPUs with "
    "CUDA_VISIBLE_DEVICES",
    "all GPUs of `--gpu` are given to the command, so another number contradicts it",
    "`--gpu 0,2` alone; or `CUDA_VISIBLE_DEVICES=0,2,3 sluice run --gpus 2`");
SL_ERROR(VISIBLE_DEVICES_EMPTY,
    "CUDA_VISIBLE_DEVICES is \"%.40s\", which hides every GPU: unset it, or name GPUs with --gpu",
    "the variable is empty or begins with `-1`", "unset it, or use `--gpu`");
SL_ERROR(GPU_HIDDEN, "%s: --gpu takes GPU %u, which CUDA_VISIBLE_DEVICES=\"%.40s\" does not allow: --gpu comes first",
    "a remark, not an error: a batch system may have set the variable, and given the GPU to somebody else",
    "leave `--gpu` out, or unset the variable");
SL_ERROR(NAME_EMPTY, "the tenant name is empty: omit --name, and sluice chooses a name",
    "`--name ''`", "omit `--name`, or give a name");
SL_ERROR(NAME_LONG, "tenant name \"%.100s\" is too long: use at most 40 characters",
    "the name becomes the name of a file", "at most 40 letters, digits, `.`, `_`, `-`");

SL_ERROR_PART("amounts");

SL_ERROR(COMPUTE_UNKNOWN, "compute \"%.40s\" is not known: write auto, slices or turns",
    "not one of the three words", "`auto` unless you have a reason");
SL_ERROR(MEMORY_BELOW_UNIT,
    "memory \"%s\" is less than %llu bytes, the smallest amount that is counted: give a unit, for example 10Gi, 512Mi "
    "or 25%%",
    "a number without a unit means bytes", "`10Gi`");

SL_ERROR_PART("driver");

SL_ERROR(PROBE_ENDED, "the process that should use the GPU ended",
    "`sluice doctor` measured whether time slices work, and could not",
    "start `sluice doctor` again when the GPU has free memory and time");
SL_ERROR_ALSO(PROBE_SILENT, "the GPU did not answer in time");
SL_ERROR_ALSO(PROBE_NO_LIBSLUICE, "libsluice was not loaded into the process that should use the GPU");
SL_ERROR_ALSO(PROBE_VARIES, "the shares that two processes got varied too much: the host or the GPU is busy");

SL_ERROR_PART("simulate");

SL_ERROR(SIM_CLUSTER_TWICE, "--nodes, --mix and --generate each describe the cluster: give only one of them",
    "the options contradict each other", "`sluice simulate --help`");
SL_ERROR_ALSO(SIM_ONLY_CHURN, "--%s works with --churn only: add --churn, or omit this option");
SL_ERROR_ALSO(SIM_SVG_CHURN, "--svg draws arrivals only: with --churn use --json or the table");
SL_ERROR_ALSO(SIM_MANY_FILES, "more than %d files of pods: give fewer files");
SL_ERROR(SIM_MIX_BAD,
    "--mix \"%.60s\" is not a list of nodes; write COUNTxMODEL:GPUS:CPU_MILLI:MEMORY_MIB[:GPU_MEMORY_MIB], for example "
    "100xH200:8:192000:2097152:143771",
    "the list of nodes is not written as expected", "as the message says");
SL_ERROR_ALSO(SIM_MIX_EMPTY, "--mix describes no node: give at least one, for example 100xH200:8:192000:2097152");
SL_ERROR(SIM_NO_TIMES, "the pods have no creation and deletion times: use --lifetimes exponential",
    "`--lifetimes trace` needs both times in the trace", "`--lifetimes exponential`");
SL_ERROR(SIM_NO_GPU_NODES, "%s: no node in this file has a GPU",
    "nothing could be placed", "a file with GPU nodes, and with the columns of `sluice simulate --help`");
SL_ERROR_ALSO(SIM_NO_GPU_PODS, "%s: no pod in this file asks for a GPU");
SL_ERROR(CSV_COLUMNS, "the file has more columns than any known trace",
    "the file is not a trace in the format of `openb`", "see `sluice simulate --help` for the columns");
SL_ERROR_ALSO(CSV_NUL, "the file contains a NUL byte, so it is not CSV");
SL_ERROR_ALSO(CSV_EMPTY, "the file is empty: it needs a header line");
SL_ERROR_ALSO(CSV_NO_COLUMN, "the header lacks the column");
SL_ERROR_ALSO(CSV_MODEL, "column model is empty or too long, or there are more than 64 models:");
SL_ERROR_ALSO(CSV_SHORT_LINE, "the line has fewer columns than the header");
SL_ERROR_ALSO(CSV_GPU_SPEC, "column gpu_spec needs models separated by |:");
SL_ERROR_ALSO(CSV_GPU_MILLI, "column gpu_milli is 0, but num_gpu asks for a GPU");

SL_ERROR_PART("people");

SL_ERROR(SYSTEM_ROOT, "the arbiter of the system must be started by root: `sudo sluice arbiter --system`",
    "it gives each user the sockets of that user, and sees the processes of all", "start it as root");
SL_ERROR(SYSTEM_SERVES,
    "the system's arbiter (%s) serves the GPUs of this machine, and two arbiters would give the same memory away "
    "twice: start the command without --dir and SLUICE_DIR",
    "an arbiter of one user was to be started, by `--dir` or `SLUICE_DIR`, where the system's arbiter runs",
    "use the system's arbiter: leave `--dir` and `SLUICE_DIR` out");
SL_ERROR(SYSTEM_SOCKET,
    "the service manager passed another socket than the arbiter needs: ListenSequentialPacket=%s, one socket, "
    "Accept=no",
    "the unit `sluice-arbiter.socket` was changed, or belongs to another directory",
    "correct the unit, or start the service without it");
SL_ERROR(SYSTEM_UNKNOWN, "%s:%u:%u: no %s is named \"%s\" here: this entry has no effect",
    "a name in the arbiter's file that the system does not know: misspelled, or gone", "correct or remove the entry");

#endif
