/* SPDX-License-Identifier: Apache-2.0 */
/* The messages of this room: see base/errtable.h. */
/* clang-format off */
#ifndef SLUICE_ARBITER_ERRORS_H
#define SLUICE_ARBITER_ERRORS_H

#include "base/errtable.h"

SL_ERROR_PART("choosing");

SL_ERROR(GPU_UNKNOWN, "there is no GPU \"%.64s\" here: this machine has %s",
    "an index or a UUID that this machine does not have", "one of the GPUs in the message");
SL_ERROR(GPU_TWICE, "GPU %u is named twice: name each GPU once",
    "an index and the UUID of the same card", "name each GPU once");
SL_ERROR(TENANT_GPUS, "a tenant may use at most %d GPUs: name fewer GPUs",
    "the most GPUs that one tenant may use", "fewer GPUs");
SL_ERROR(PAUSE_REACH,
    "tenant %s cannot be paused: its GPU is one of those whose time the arbiter does not share (index 16 and more)",
    "a MIG instance with a high index, or a tenant on such a GPU only",
    "stop its processes with `kill -STOP` instead, or use a GPU with a lower index");
SL_ERROR(GPU_SMALL, "GPU %u (%s) has %s, %s were asked for: ask for less",
    "more than the card has (for example `200Gi` of 141)", "a smaller amount");
SL_ERROR(GPUS_FEW, "%u GPUs were asked for, but this machine has %u: ask for fewer GPUs",
    "`--gpus` names more cards than there are; MIG instances do not count, because a process can use only one of them",
    "a smaller number");
SL_ERROR_ALSO(GPUS_MIG,
    "%u GPUs were asked for, but there are %u that may be used and are no MIG instances, of which a process can use "
    "one only: ask for one GPU");
SL_ERROR_ALSO(GPUS_VISIBLE,
    "%u GPUs were asked for, but CUDA_VISIBLE_DEVICES allows %u: ask for fewer GPUs, or allow more");
SL_ERROR(NO_GPU_SO_LARGE,
    "%s were asked for, but no GPU that may be used is so large: the largest, GPU %u (%s), has %s: ask for less%s",
    "the GPU is chosen by itself, and every one that may be used has less memory in all",
    "a smaller amount, or a part on each of several GPUs: `--gpus 2`");
SL_ERROR_ALSO(GPUS_SMALL,
    "%u GPUs with %s each were asked for, but %u of the %u that may be used are so large: ask for less, or for fewer "
    "GPUs");
SL_ERROR(NO_SINGLE_GPU,
    "no single GPU has %s left: GPU %u has the most, %s, and the %u GPUs that may be used have %s together: ask for at "
    "most what one has, or for a part on each of several GPUs with --gpus",
    "the memory that is left is spread over several cards, and one tenant has its memory on one card unless it asks "
    "for several",
    "ask for less; `--gpus 2` with the memory that is needed on each; or `--wait`");
SL_ERROR_ALSO(NO_GPU_SO_MUCH,
    "none of %u GPUs has %s left: GPU %u has the most, %s: ask for less, or see in `sluice status` which tenants have "
    "the rest");
SL_ERROR(NO_GPU_HAS_ROOM,
    "none of %u GPUs has room for this tenant (left: %s): ask for less, or see in `sluice status` which tenants have "
    "the rest",
    "no `--gpu` was given, and every GPU that may be used has too little memory or time left",
    "ask for less, end a tenant, or give a tenant less with `sluice set`");
SL_ERROR_ALSO(GPUS_NO_ROOM,
    "%u GPUs were asked for, and %u %s room of the %u that may be used (left: %s): ask for less on each, or for fewer "
    "GPUs");
SL_ERROR(GPU_MEMORY_LEFT,
    "GPU %u (%s) has %s left of %s, %s were asked for: ask for less, or see in `sluice status` which tenants have the "
    "rest",
    "the rest is promised to other tenants", "ask for less, end a tenant, or give a tenant less with `sluice set`");
SL_ERROR(GPU_MEMORY_USED,
    "GPU %u (%s) has %s left of %s, %s were asked for: tenants without a memory limit use %s (%s uses most of it): ask "
    "for less, end them, or start them with --memory",
    "a tenant that was started without `--memory` already uses the memory, and nothing is taken away from a tenant",
    "ask for less, or end that tenant and start it again with `--memory`");
SL_ERROR(GPU_MEMORY_GONE,
    "GPU %u (%s) has nothing left of %s: all memory is promised or used; see in `sluice status` which tenants have it",
    "a tenant without `--memory` gets the memory that is not promised, and there is none",
    "give a tenant less with `sluice set`, or use another GPU");
SL_ERROR(LINE_BEFORE, "other commands wait in line for GPU %u and go first",
    "a command that was started with `--wait` is before this one, also where this one would fit",
    "add `--wait`, or use another GPU");
SL_ERROR_ALSO(LINE_BEFORE_ALL, "other commands wait in line for every GPU that may be used, and go first");
SL_ERROR_ALSO(LINE_BEFORE_SOME, "other commands wait in line for %u of the %u GPUs that may be used, and go first");
SL_ERROR(LINE_TIME_OVER, "there was no room in the time given",
    "the GPU was in use for all of the time after `--wait=`", "a longer time, or `--wait` without a time");
SL_ERROR(LINE_FULL, "%d commands wait in line already, the most that may: end some of them",
    "one arbiter keeps at most 1,024 places", "end some of the commands that wait, and start this one again");
SL_ERROR(USE_UNKNOWN,
    "the memory that tenant %s uses of GPU %u is not known yet, because the arbiter has just restarted: try again in a "
    "second",
    "the tenant has no limit, and its processes have not yet reported to the new arbiter",
    "try again; the agent does so without help");
SL_ERROR(GPU_TIME_LEFT,
    "GPU %u has %s %% of its time left, %s %% were asked for: ask for less, or see in `sluice status` which tenants "
    "have the rest",
    "the rest is promised to other tenants", "ask for less, end a tenant, or give a tenant less with `sluice set`");
SL_ERROR(TIME_NOT_DIVIDED,
    "the time of %s (GPU %u) cannot be divided, only that of the first %u of the %u GPUs and MIG instances here: use "
    "one of those, or use this one alone and without cores",
    "there are more than 16 GPUs and MIG instances; the order is that of `sluice status`",
    "a GPU or instance among the first 16; or this one alone, without `--cores`");
SL_ERROR(TENANTS_FULL, "there are %u tenants already, the most among which GPU time can be divided: end some of them",
    "one arbiter serves at most 1,024 tenants", "end some tenants");
SL_ERROR(TENANT_NAME_BAD,
    "tenant name \"%.100s\" is not valid: use up to 40 letters, digits, '.', '_' and '-', beginning with a letter or "
    "digit",
    "the name becomes the name of a file", "up to 40 letters, digits, `.`, `_`, `-`");
SL_ERROR(TENANT_NAME_TAKEN, "a tenant named \"%s\" already runs: choose another --name, or see `sluice status`",
    "two tenants cannot have the same name", "another `--name`");
SL_ERROR(TENANT_OTHER_LEASE,
    "tenant %s exists already with another lease: remove the tenant first, or change it with `sluice set`",
    "the agent asked for a tenant that exists with other limits", "delete the pod of the claim, or use `sluice set`");
SL_ERROR(TENANT_OF_COMMAND, "tenant %s was made by a command and ends with its last process: end its processes",
    "only tenants of containers can be removed", "end the processes of the tenant");
SL_ERROR(TENANT_ASKER_GONE, "the process that asked for tenant %s has ended",
    "the process was killed before the arbiter could answer", "nothing: no tenant was made");
SL_ERROR(TENANT_KEPT_INCOMPLETE, "a tenant of a container needs a name and the UUIDs of its GPUs",
    "a program other than the agent made a tenant of a container", "name both");
SL_ERROR(TENANT_UNKNOWN, "no tenant is named \"%s\"; `sluice status` lists them",
    "no tenant with this name runs", "a name of `sluice status`");

SL_ERROR_PART("people");

SL_ERROR(LIMIT_MEMORY,
    "%s may have %s of GPU memory in all (%s line %u), has %s, and asked for %s: ask for less, or end another tenant "
    "of this user",
    "the sum of the memory of all tenants of one user, on all GPUs, would be more than the file allows",
    "ask for less, end one of your tenants, add `--wait`, or ask the administrator for a higher limit");
SL_ERROR_ALSO(LIMIT_MEMORY_NEVER,
    "%s may have %s of GPU memory in all (%s line %u), and asked for %s: ask for less, or ask the administrator for a "
    "higher limit");
SL_ERROR_ALSO(LIMIT_MEMORY_UNSAID,
    "%s may have %s of GPU memory in all (%s line %u), and a tenant without --memory could take more: name an amount "
    "with --memory");
SL_ERROR_ALSO(LIMIT_CORES,
    "%s may be promised %s %% of one GPU's time in all (%s line %u), has %s %%, and asked for %s %%: ask for less, or "
    "end another tenant of this user");
SL_ERROR_ALSO(LIMIT_CORES_NEVER,
    "%s may be promised %s %% of one GPU's time in all (%s line %u), and asked for %s %%: ask for less, or ask the "
    "administrator for a higher limit");
SL_ERROR_ALSO(LIMIT_TENANTS, "%s may have %s tenants at a time (%s line %u), and has %s: end one of them first");
SL_ERROR_ALSO(LIMIT_PRIORITY, "%s may ask for priority %s at most (%s line %u), not for %s: ask for a lower one");
SL_ERROR(TENANT_FOREIGN, "tenant %s belongs to another user (uid %u): only that user and root may change it",
    "each user may change only tenants of their own", "ask that user, or root");
SL_ERROR(ATTACH_FOREIGN,
    "this tenant belongs to another user: only processes of that user, and of its own containers, may join it; for a "
    "container that root's container service starts with another user, let root make the lease",
    "a process of one user connected to the socket of another user's tenant (log of libsluice)",
    "start the program with `sluice run` of its own user; leases for containers of other users are made by root");
SL_ERROR(ARBITER_PRIVATE, "this arbiter serves only the user who runs it",
    "a process of another user reached the socket", "use your own arbiter: `sluice run` starts it");
SL_ERROR(PERSON_GROUP,
    "this arbiter serves the users of the group %s: let root run `usermod -aG %s USER` (yours has uid %u), then log in "
    "again",
    "the user is not in the group that the file of the arbiter names", "join the group, and log in again");
SL_ERROR_ALSO(SYSTEM_GROUP,
    "the system's arbiter (%s) serves the GPUs of this machine for the group %s, and %s is not in it here: let root "
    "run `usermod -aG %s %s`, then log in again");
SL_ERROR(PERSON_TENANTS,
    "you have %u tenants, and the arbiter has room for only %u more of all users: end some of yours first",
    "one user may not take the last places for tenants", "end some of your tenants");
SL_ERROR_ALSO(PERSON_LINE,
    "%u of your commands wait in line, and there are only %u places left for all users: end some of yours first");
SL_ERROR_ALSO(PERSON_DESCRIPTORS,
    "your tenants and commands use as many connections as the arbiter has left for all users: end some of yours");
SL_ERROR_ALSO(PERSON_BUSY, "this user connects to the arbiter too often: try again in a second");
SL_ERROR(SYSTEM_DOWN,
    "the system's arbiter (%s) does not answer: start it with `systemctl start sluice-arbiter`, or with `sluice "
    "arbiter --system` where there is no systemd",
    "the arbiter was killed, and nothing has started it again; tenants that run keep their limits",
    "start it; to go back to an arbiter for each user, remove its socket `arbiter.sock`");
SL_ERROR(SYSTEM_SILENT,
    "the system's arbiter has not answered for %d s: look at it with `systemctl status sluice-arbiter`; tenants "
    "continue meanwhile",
    "the arbiter starts, is stopped, or hangs in the driver",
    "`systemctl restart sluice-arbiter`: tenants keep running");
SL_ERROR(SYSTEM_SOCKET_GROUP, "cannot give the socket in %s to the group %s",
    "the arbiter of the system must run as root", "start it as root");
SL_ERROR(RULES_KEY, "there is no key \"%.60s\" here: the keys are %s",
    "a key that the arbiter's file does not have at this place", "one of the keys in the message");
SL_ERROR_ALSO(RULES_KEY_NEAR, "there is no key \"%.60s\" here: did you mean \"%s\"?");
SL_ERROR(RULES_NO_VALUE, "\"%.60s\" has no value: write KEY: VALUE",
    "a key without a value, or with keys below it that do not belong there", "`memory: 40Gi`");
SL_ERROR_ALSO(RULES_BLOCK, "\"%.60s\" takes keys below it, not a value: write for example {memory: 40Gi, cores: 50}");
SL_ERROR(RULES_PERCENT,
    "memory \"%.40s\": write an amount such as 40Gi; a limit is for all GPUs, so a percentage of one card says nothing",
    "the limit of a user counts memory on all GPUs together", "an amount: `40Gi`, or `unlimited`");
SL_ERROR_ALSO(RULES_CORES,
    "cores \"%.40s\" is not a share: write percent of one GPU, for example 50, or 200 for two GPUs");
SL_ERROR_ALSO(RULES_TENANTS, "tenants \"%.40s\" is not a number from 0 to %d");
SL_ERROR(RULES_GROUP_UNKNOWN,
    "no group is named \"%.60s\" here: let root run `groupadd --system %.60s`, or name another",
    "the group that may use the arbiter does not exist", "make the group, or name another with `group:`");
SL_ERROR_ALSO(RULES_NO_GROUP,
    "no group is named \"%s\" here: let root run `groupadd --system %s`, or name another with `group:` in %s");
SL_ERROR(RULES_NO_FILE, "%s is not a file",
    "a directory or a device has the name of the arbiter's file", "name the file with `--config`");
SL_ERROR(RULES_WRITABLE, "other users can write %s: run `chown root %s` and `chmod go-w %s`",
    "who writes the file gives out the GPUs", "let root own it, and nobody else write it");
SL_ERROR(RULES_KEPT_LOG, "%s is not in force, and what it said before is: %s",
    "the file was changed and has a mistake (log)", "correct the line in the message, then reload again");

SL_ERROR_PART("amounts");

SL_ERROR(TENANT_NEEDS_MEMORY, "a tenant needs some memory: ask for example for 1Gi or 25%%",
    "a program sent an empty amount to the arbiter", "an amount");
SL_ERROR(CORES_RANGE,
    "cores must be a percentage of one GPU from 0.1 to 100, and the request must not exceed the limit",
    "a program sent other cores to the arbiter", "`30`, `12.5`, `30:100`");
SL_ERROR(PRIORITY_RANGE, "the priority must be high, normal or low",
    "a program sent another priority to the arbiter", "`high`, `normal` or `low`");
SL_ERROR(COMPUTE_RANGE, "GPU time can be shared by slices or by turns: ask for one of them",
    "a program sent another mode to the arbiter", "`auto`, `slices` or `turns`");

SL_ERROR_PART("driver");

SL_ERROR(NO_GPU, "the driver is loaded, but there is no GPU: see `nvidia-smi`, or use a simulated GPU with --sim h200",
    "there is no card, or none is visible in this container", "`nvidia-smi`; start the container with its GPUs");
SL_ERROR(NVML_THREAD, "cannot start the NVML thread",
    "the system allows no more threads", "raise the limit of processes (`ulimit -u`)");
SL_ERROR(GPU_LEFT_OUT_LOG, "%s is not served: there are more than %d GPUs and MIG instances",
    "the limits of one arbiter (log)", "nothing: tenants cannot use this one");
SL_ERROR_ALSO(CARDS_LEFT_OUT_LOG, "GPUs %d to %zu are not served: the arbiter serves %d cards");
SL_ERROR(GPU_UNREADABLE_LOG, "GPU %zu is not served: %s",
    "NVML cannot read the card; the reason is in the message (log)", "`nvidia-smi`, `dmesg`");

SL_ERROR_PART("arbiter");

SL_ERROR(NO_ARBITER, "no arbiter is running in %s",
    "`status` or `set` while no tenant runs", "start a command with `sluice run`; check `--dir` and `--sim`");
SL_ERROR(ARBITER_SECOND, "an arbiter already serves %s: use it, or choose another directory with --dir",
    "a second arbiter was started by hand in the same directory", "use the first, or another `--dir`");
SL_ERROR(ARBITER_HUNG,
    "another arbiter serves %s but does not answer: look for a `sluice arbiter` process that hangs, and end it",
    "an arbiter hangs", "end that `sluice arbiter` process");
SL_ERROR(ARBITER_SILENT,
    "the arbiter (process %d) has not answered for %d s: if it hangs, end it with `kill -KILL %d`; tenants continue, "
    "and another arbiter takes over",
    "the arbiter is stopped, or hangs in the driver",
    "`kill -CONT` if somebody stopped it, else `kill -KILL`: tenants keep their limits, and the next `sluice run` "
    "starts another arbiter");
SL_ERROR(ARBITER_NOT_READY,
    "the arbiter was started but is not ready after a minute: check whether nvidia-smi answers, and run `sluice "
    "doctor`",
    "NVML hangs", "`nvidia-smi`, `sluice doctor`");
SL_ERROR(ARBITER_ENDED_EARLY, "the arbiter ended with code %d before it was ready",
    "the arbiter could not start", "run `sluice arbiter --dir DIR` by hand to see the reason");
SL_ERROR_ALSO(ARBITER_KILLED_EARLY, "the arbiter was killed by signal %d before it was ready");
SL_ERROR(ARBITER_ENDED, "the arbiter ended while it was asked",
    "the arbiter was killed",
    "nothing: tenants keep their last limits, and the next `sluice` command starts the arbiter");
SL_ERROR(ARBITER_ANSWER,
    "the arbiter gave an unexpected answer of type %u: install the same version of Sluice everywhere and restart the "
    "arbiter",
    "the arbiter and this program are of different versions", "install the same version everywhere");
SL_ERROR_ALSO(ARBITER_LIST, "the arbiter lists more entries than are possible");
SL_ERROR(ARBITER_NO_LINE,
    "the arbiter (process %d) is of an older version, in which commands cannot wait: start the command without --wait, "
    "or again when the tenants of that arbiter have ended",
    "the arbiter was started before this version of Sluice was installed",
    "the old arbiter ends two seconds after its last tenant; `sluice run` then starts a new one");
SL_ERROR(ARBITER_ONE_GPU,
    "the arbiter (process %d) is of an older version, which chooses one GPU only: name the GPUs, for example --gpu "
    "0,1, or start the command again when the tenants of that arbiter have ended",
    "the arbiter was started before this version of Sluice was installed",
    "name the GPUs with `--gpu`; the old arbiter ends two seconds after its last tenant");
SL_ERROR(ARBITER_DESCRIPTORS,
    "the arbiter has no free descriptors: end some of its clients, or raise its limit (ulimit -n) and restart it",
    "thousands of processes", "raise `ulimit -n` before the first `sluice run`");
SL_ERROR_ALSO(ARBITER_DESCRIPTORS_NOW,
    "the arbiter has no free descriptors: raise its limit (ulimit -n) and try again");
SL_ERROR(TENANT_DESCRIPTORS,
    "this tenant uses all descriptors of the arbiter that it may use, two for each process: end some of its processes, "
    "or raise the arbiter's limit (ulimit -n)",
    "one tenant has so many processes or connections that too few would be left for the others",
    "end some of its processes, or raise `ulimit -n` before the first `sluice run`");
SL_ERROR(TENANT_PROCESSES,
    "tenant %s already has %d processes on the GPU, the most that one tenant may have: end some of them, or start a "
    "second tenant",
    "the most processes that one tenant may have", "end some, or start a second tenant");
SL_ERROR(PLACE_EMPTY, "the name of the arbiter's directory is empty: name a directory with --dir",
    "`--dir ''`, or an empty `SLUICE_DIR`", "a directory");
SL_ERROR(PLACE_LONG,
    "the directory \"%.100s...\" is too long for a unix socket in it (107 bytes with \"/%s\"): name a shorter "
    "directory with --dir",
    "unix sockets allow 107 bytes", "a shorter `--dir`");
SL_ERROR(PLACE_LOOK, "cannot look at the arbiter's directory %s",
    "permissions, or a full or read-only disk; the reason of the system follows",
    "a directory of your own with `--dir` or `SLUICE_DIR`");
SL_ERROR_ALSO(PLACE_MAKE, "cannot make the arbiter's directory %s (name another directory with --dir)");
SL_ERROR_ALSO(PLACE_USE, "cannot use the arbiter's directory %s (chmod 700 it, or name another directory with --dir)");
SL_ERROR_ALSO(PLACE_WRITE, "cannot write in %s: is the disk full, or does the directory belong to another user?");
SL_ERROR(PLACE_FOREIGN, "the directory %s belongs to another user (uid %u): name a directory of your own with --dir",
    "another user could change the files of the arbiter", "`chmod 700`, or another `--dir`");
SL_ERROR_ALSO(PLACE_OPEN,
    "other users can write to the directory %s (mode %03o): chmod 700 it, or name another directory with --dir");
SL_ERROR_ALSO(PLACE_LINK,
    "%s is a link that another user (uid %u) made: remove it, or name another directory with --dir");
SL_ERROR(PLACE_FILE, "%s is not a directory: remove it, or name another directory with --dir",
    "a file has the name of the directory", "remove the file, or another `--dir`");
SL_ERROR(SIM_UNNAMED, "no simulated card is named: write for example --sim h200",
    "`--sim ''`", "`--sim h200`, `--sim h200x4`, or a file: [simulated-gpu.md](simulated-gpu.md)");
SL_ERROR_ALSO(SIM_LONG, "--sim \"%.60s...\" is too long: use fewer cards, or a file that describes them");
SL_ERROR_ALSO(SIM_FILE, "cannot read the simulated cards from \"%s\"");
SL_ERROR(LEASE_REFUSED_LOG, "the arbiter does not take over tenant %s: %s (its file is renamed to %s)",
    "the lease file of an earlier arbiter is damaged, or its GPU is gone (log)", "remove the renamed file");
SL_ERROR_ALSO(LEASE_DAMAGED, "the file is incomplete, or another program wrote it");
SL_ERROR_ALSO(LEASE_GPU_GONE, "GPU %s of the tenant is gone");
SL_ERROR(HISTORY_WRITE_LOG, "the history of ended tenants cannot be written, and is lost when the arbiter ends: %s",
    "a full or read-only disk; the reason of the system follows (log)",
    "make room: with the next tenant that ends, all that is missing is written");
SL_ERROR_ALSO(HISTORY_NO_FILE, "history is not a file: remove it from the arbiter's directory");

#endif
