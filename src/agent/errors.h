/* SPDX-License-Identifier: Apache-2.0 */
/* The messages of this room: see base/errtable.h. */
/* clang-format off */
#ifndef SLUICE_AGENT_ERRORS_H
#define SLUICE_AGENT_ERRORS_H

#include "base/errtable.h"

SL_ERROR_PART("agent");

SL_ERROR(AGENT_OPTION, "\"%.60s\" is not an option: see sluiced --help",
    "the command line of `sluiced`, or a variable", "`sluiced --help`, `man sluiced`");
SL_ERROR_ALSO(AGENT_OPTION_NEAR, "there is no option --%s: did you mean --%s? See sluiced --help");
SL_ERROR_ALSO(AGENT_OPTION_UNKNOWN, "there is no option --%s: see sluiced --help");
SL_ERROR_ALSO(AGENT_NEEDS_VALUE, "--%s needs a value");
SL_ERROR_ALSO(AGENT_BOOL, "--%s must be true or false, not \"%.40s\"");
SL_ERROR_ALSO(AGENT_LOG_LEVEL, "--log-level (or SLUICE_LOG) must be off, error, warn, info or debug, not \"%.40s\"");
SL_ERROR_ALSO(AGENT_DRA_DRIVER, "--dra-driver must be gpu.sluice.io or gpu.nvidia.com, not \"%.40s\"");
SL_ERROR_ALSO(AGENT_DRA_DRIVER_ALONE,
    "--dra-driver=gpu.nvidia.com is about resource claims: write --dra too (the component dra beside nvidia-claims)");
SL_ERROR_ALSO(AGENT_CONSUMABLE,
    "--consumable-shares is about claims of class gpu.nvidia.com: write --dra-driver=gpu.nvidia.com too");
SL_ERROR_ALSO(METRICS_NAMES, "--metrics-names must be sluice, hami, dcgm, or several with commas, not \"%.40s\"");
SL_ERROR(AGENT_NO_DRIVER, "%.360s; to wait for a driver, set failOnInitError: false",
    "there is no driver, and the configuration says that this is an error",
    "install the driver; or set `failOnInitError: false` where nodes without GPUs run the agent");
SL_ERROR(ARBITER_AWAY_LOG,
    "%.300s; containers with a share cannot start meanwhile. In a pod, %s must be a folder of the node: install the "
    "agent with deploy/components/fractional or dra",
    "the arbiter has been away for ten seconds: the message says why",
    "do what the message says; the event `ArbiterUp` tells that it is back");
SL_ERROR(CONFIG_LABEL, "label %s of the Node is \"%.60s\", and no file in %s has that name",
    "the label `nvidia.com/device-plugin.config` of the Node",
    "correct the label; the configuration before it stays in force until then");
SL_ERROR_ALSO(CONFIG_NAME_LONG, "the name \"%.60s\" of a configuration is too long");
SL_ERROR_ALSO(CONFIG_NO_FILE_NAMED,
    "there is no configuration \"%.60s\" in %s: add it to the ConfigMap, or change label %s of the Node");
SL_ERROR(AGENT_MPS_GPUS, "MPS cannot run on more than %d GPUs of one node",
    "the limit of one agent", "share the other GPUs in another way");
SL_ERROR(AGENT_NO_CARDS, "the cards are not known yet",
    "the agent starts", "nothing: kubelet tries again");
SL_ERROR(AGENT_NO_LIBSLUICE, "libsluice.so is not installed beside sluiced: name it with --libsluice",
    "`libsluice.so` is not installed with the agent", "install it, or use `--libsluice`");
SL_ERROR(AGENT_DRA_API, "--dra needs the API server: give --kubeconfig, or run in a pod",
    "`--no-api` excludes options that need the API server", "omit one of the two");
SL_ERROR_ALSO(AGENT_FEATURE_API, "--node-feature needs the API server, and --no-api excludes it: omit one of the two");
SL_ERROR(FRACTION_NOT_READY, "fractions are not ready yet: see the log of the agent",
    "the agent starts", "nothing: kubelet tries again");
SL_ERROR(MPS_TWO_GPUS,
    "%s: the container would get shares of two GPUs, but a process can use one MPS daemon: no GPU has so many free "
    "shares, ask for fewer",
    "a container asked for more shares than any card has free", "ask for fewer");
SL_ERROR(MPS_NOT_RUNNING, "%s: MPS is not running yet",
    "MPS starts", "nothing: kubelet tries again");
SL_ERROR(DRIVER_FILES_MISSING, "%s: the files of the driver are not found yet: see the log of the agent",
    "the driver root has no libraries yet; the event `DriverFilesMissing` says which",
    "install the driver; `--driver-root`");
SL_ERROR(FRACTION_AND_WHOLE,
    "the container would get fractions and whole devices: give them resource names of their own in the configuration "
    "of the node (resources)",
    "one resource name for both", "names of their own (`resources`)");
SL_ERROR(CONFIG_KEPT_LOG, "the old configuration stays in force: %s",
    "the new file is wrong, or wrong for the cards of this node; the reason follows (log, event `ConfigRefused`)",
    "correct the file; the agent reads it again");
SL_ERROR(PLAN_KEPT_LOG, "the node continues to offer the same devices as before: %s",
    "the cards changed, or the agent has just started, and the file is not for these cards (log, event `ConfigUnfit`, "
    "`/readyz`)",
    "a file for this node; the agent reads it again after every change");
SL_ERROR(CONFIG_RESTART_LOG, "%s has changed: the change takes effect when the agent is restarted",
    "a setting that is read once (log)", "restart the pod of the agent");
SL_ERROR(CONFIG_LABEL_UNSAVED_LOG, "cannot save the label of the Node: %s",
    "the state directory cannot be written (log)", "`--state-dir`");
SL_ERROR(ARBITER_REPLACED_LOG,
    "the arbiter (process %d) has not answered for %d s: the agent ends it and starts another; tenants continue "
    "meanwhile",
    "the arbiter was stopped, or hangs (log)", "nothing; if it comes again, report it with the log of the arbiter");
SL_ERROR(ARBITER_FOREIGN_LOG,
    "the arbiter at %s has not answered for %d s, and its process is not visible from here: end that process, and this "
    "agent starts another arbiter",
    "the arbiter hangs, and is in another PID namespace (log)", "end that process");

SL_ERROR(VM_NO_DRA,
    "vm.by is claims, but this agent serves no claims: no device is offered to virtual machines; start it with --dra, or "
    "write vm.by: plugins",
    "the configuration and the options of the agent contradict each other", "do what the message says");
SL_ERROR(VM_NVIDIA_NAME,
    "vm.by is claims, but this agent serves claims under the name gpu.nvidia.com: devices for virtual machines are offered "
    "by device plugins; write vm.by: plugins, or start the agent without --dra-driver",
    "the devices under NVIDIA's name are those of NVIDIA's driver, and it has none for virtual machines",
    "do what the message says");
SL_ERROR(VM_BLIND,
    "kubelet does not say which devices are in use: no device for virtual machines is offered by claims until it does: "
    "%s",
    "kubelet's PodResources socket is not mounted, or kubelet is away", "`--pod-resources-socket`");
SL_ERROR(VM_HAS_PLUGIN, "a pod has %s by a device plugin: claims get it when that pod has ended",
    "`vm.by` or `--dra` changed while the device was in use", "nothing, or end the virtual machine");
SL_ERROR(VM_HAS_CLAIM, "a claim has %s: device plugins get it when the claim's pod has ended",
    "`vm.by` changed while the device was in use", "nothing, or end the virtual machine");

#endif
