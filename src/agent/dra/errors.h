/* SPDX-License-Identifier: Apache-2.0 */
/* The messages of this room: see base/errtable.h. */
/* clang-format off */
#ifndef SLUICE_AGENT_DRA_ERRORS_H
#define SLUICE_AGENT_DRA_ERRORS_H

#include "base/errtable.h"

SL_ERROR_PART("dra");

SL_ERROR(SHARE_KIND, "the opaque parameters are %.60s %.40s: write apiVersion: %s and kind: %s",
    "the configuration in the claim or the class has a mistake",
    "write what the message says; a claim cannot be changed: delete the pod and its claim");
SL_ERROR(ALLOW_IN_CLAIM,
    "ShareConfig: allow says what claims may ask for, so it belongs in a DeviceClass: remove it from the claim",
    "a claim cannot allow anything to itself", "a DeviceClass, or the configuration of the node");
SL_ERROR(ALLOW_MAPPING, "ShareConfig: allow must be a mapping: write `allow: {priority: high}`",
    "the configuration of a DeviceClass has a mistake; its claims wait", "write what the message says");
SL_ERROR_ALSO(ALLOW_KEY,
    "ShareConfig: allow.%.40s is not known: the keys are strategies, priority, burst, resize, resizeTo and namespaces");
SL_ERROR_ALSO(ALLOW_STRATEGIES, "ShareConfig: allow.strategies must be a list: write [libsluice, mps]");
SL_ERROR_ALSO(ALLOW_NAMESPACES, "ShareConfig: allow.namespaces must be a list: write [team-a, \"ml-*\"]");
SL_ERROR_ALSO(ALLOW_NAMESPACE, "ShareConfig: a name in allow.namespaces is not a text");
SL_ERROR_ALSO(ALLOW_PERCENT, "ShareConfig: allow.%s must be a whole percentage from 0 to 100");
SL_ERROR(NVIDIA_KIND,
    "the parameters for gpu.nvidia.com are %.60s %.40s: Sluice serves GpuConfig and MigDeviceConfig of "
    "resource.nvidia.com/v1beta1",
    "a claim of NVIDIA's DRA driver asks for what Sluice does not have",
    "write what the message says; a claim cannot be changed: delete the pod and its claim");
SL_ERROR_ALSO(NVIDIA_MAPPING, "%s: %s must be a mapping");
SL_ERROR_ALSO(NVIDIA_KEY, "%s: %.60s is not known in %s: correct or remove it");
SL_ERROR_ALSO(NVIDIA_STRATEGY, "%s: sharing.strategy must be TimeSlicing or MPS");
SL_ERROR_ALSO(NVIDIA_BESIDE, "%s: %s does not go with strategy %s: remove it");
SL_ERROR_ALSO(NVIDIA_INTERVAL, "%s: interval must be Default, Short, Medium or Long");
SL_ERROR_ALSO(NVIDIA_PERCENT, "%s: defaultActiveThreadPercentage must be a whole number from 1 to 100");
SL_ERROR_ALSO(NVIDIA_MEMORY, "%s: %s must be an amount of at least 1Mi: write for example 10Gi");
SL_ERROR_ALSO(NVIDIA_PLACE,
    "%s: %s has the key %.60s: write the number of the device in the claim, from 0; UUIDs are not served");
SL_ERROR_ALSO(NVIDIA_OTHER_KIND,
    "a %s is not for %s: a GpuConfig is for whole GPUs, a MigDeviceConfig for MIG instances");
SL_ERROR_ALSO(NVIDIA_MPS_MIG, "MPS on the MIG instance %s is not served: use TimeSlicing, or a whole GPU");
SL_ERROR_ALSO(NVIDIA_SHARED,
    "%s is not possible on %s, which is shared with other claims (--consumable-shares): it is for a GPU that one claim "
    "has alone");
SL_ERROR_ALSO(NVIDIA_SHARES,
    "request %s asks for %u shares, but their memory and time are not multiplied: name memory and cores in its "
    "capacity as well");
SL_ERROR_ALSO(NVIDIA_UNLIMITED,
    "request %s names no memory or no cores, and this node counts neither (--consumable-shares=unlimited): name both, "
    "or use the class gpu.nvidia.com");
SL_ERROR(NVIDIA_UNSERVED,
    "parameters for gpu.nvidia.com have no effect on %s of gpu.sluice.io: remove them from the claim; or add the "
    "component nvidia-claims, which serves them",
    "only the class was changed in a claim of NVIDIA's DRA driver",
    "do what the message says; [migrate.md](migrate.md#from-nvidias-dra-driver)");
SL_ERROR(CONSUMABLE,
    "--consumable-shares=%.40s is not possible: write disabled, memory, unlimited, or a number from 1 to 100",
    "options of the agent", "do what the message says");
SL_ERROR(TIMESLICE,
    "cannot set the interval of time-slicing on GPU %s: %s; remove the interval from the claim, or write Default",
    "a GpuConfig with an interval, and a driver or a card that cannot set it",
    "do what the message says; `nvidia-smi compute-policy -h` on the node");
SL_ERROR(CLAIM_CONFIG_UNSHARED,
    "request %s has a ShareConfig but got %s, which is not shared: remove the configuration from the claim, or ask for "
    "a share (class gpu.sluice.io)",
    "a configuration for shares on a whole GPU or MIG instance", "remove it, or ask for a share");
SL_ERROR(CLAIM_LIMIT_LOW,
    "request %s: ShareConfig cores.limit is %u %%, below its share of %u %%: raise the limit, or ask for fewer cores",
    "the limit is less than the request", "raise the limit");
SL_ERROR(CLAIM_NO_SHARE,
    "the allocation of %s contains no share: kube-scheduler needs the feature DRAConsumableCapacity (on since "
    "Kubernetes 1.36)",
    "a scheduler without `DRAConsumableCapacity`", "Kubernetes 1.36.3 or later");
SL_ERROR_ALSO(CLAIM_SHARE_BAD,
    "request %s was given memory %s and cores %s: both must be more than 0, and cores at most 100");
SL_ERROR(CLAIM_NAMES_LONG,
    "the names of the claim are too long: at most 63 characters for the namespace and 253 for the name",
    "the claim changed while the pod waited", "delete the pod");
SL_ERROR_ALSO(CLAIM_REPLACED,
    "claim %.63s/%.120s has been replaced by another claim (uid %.63s): the claim of the pod is gone, delete the pod");
SL_ERROR_ALSO(CLAIM_UNALLOCATED, "claim %s/%s is not allocated, or no longer");
SL_ERROR_ALSO(CLAIM_OTHER_NODE, "claim %s/%s is allocated on node %.120s, but this is node %.120s");
SL_ERROR_ALSO(CLAIM_NO_DEVICE, "claim %s/%s has no device of %s");
SL_ERROR_ALSO(CLAIM_DEVICES, "claim %s/%s has more than %d devices");
SL_ERROR_ALSO(CLAIM_RESULT, "the allocation of the claim has a result without the name of a request");
SL_ERROR_ALSO(CLAIM_CHANGED, "the claim has been replaced by another claim");
SL_ERROR(CLAIM_NOT_PROTOBUF, "the answer of the API server is not in protobuf",
    "the claim's `status.devices` is not written, its pod runs", "the rights in [dra.md](dra.md)");
SL_ERROR(DEVICE_FOREIGN,
    "device \"%.63s\" does not belong to this driver: delete the claim, and the ResourceSlices of this node if they "
    "name it",
    "the node changed after the pod was scheduled", "delete the pod, and its successor is placed again");
SL_ERROR_ALSO(CLAIM_GPU_MISSING,
    "this node has %zu GPUs, but the claim was given %s: delete the pod, and its successor is placed again");
SL_ERROR_ALSO(CLAIM_NO_PLACE,
    "GPU %u has no place for %s, or no longer: delete the pod, and its successor is placed again");
SL_ERROR_ALSO(CLAIM_MIG_GONE, "the MIG device %s is gone: delete the pod, and its successor is placed again");
SL_ERROR(CLAIM_GPU_GONE, "GPU %s is no longer in this machine",
    "the card is lost", "reset or replace the card");
SL_ERROR_ALSO(CLAIM_GPU_LOST, "GPU %u fell off the bus: %s cannot be used until the GPU is back");
SL_ERROR(CLAIM_VM_ADMIN,
    "request %s has adminAccess, but %s goes to one virtual machine as a whole and cannot be looked at: remove "
    "adminAccess, or look at another device",
    "administrative access to a device for virtual machines", "remove `adminAccess`");
SL_ERROR(CLAIM_VM_HAS_CARD,
    "virtual machines have GPU %u, so %s cannot be prepared: delete the pod, and its successor is placed again",
    "the card was bound to vfio-pci, or got vGPUs, after the pod was scheduled", "delete the pod");
SL_ERROR(CLAIM_VM_GONE, "%s is not offered to virtual machines, or no longer: delete the pod, and its successor is "
    "placed again",
    "the device was unbound or removed after the pod was scheduled", "delete the pod");
SL_ERROR(METADATA_UNWRITTEN, "the file with the attributes of claim %s/%.100s cannot be written: %s",
    "the state directory is full or read-only; virt-launcher would not know which device it has",
    "make room there, or correct `--state-dir`");
SL_ERROR(CLAIM_NOT_FREE,
    "%s is not free: claim %s/%.100s holds %s of the same GPU; kubelet tries the pod again until that claim is gone",
    "the claim of an earlier pod is still being removed", "wait; if it stays, `kubectl get resourceclaims`");
SL_ERROR(CLAIM_MEMORY_LEFT, "%s has %s of memory left, %s are asked for: %s",
    "shares were resized beyond what the scheduler knows", "make one smaller, or delete the pod");
SL_ERROR_ALSO(CLAIM_TIME_LEFT, "%s has %u %% of its time left, %u %% are asked for: %s");
SL_ERROR(CLAIM_STRATEGIES,
    "request %s has strategy %s, but claim %s/%.100s shares the same GPU by %s: use one strategy for a GPU, or another "
    "GPU (a selector on the devices of the DeviceClass)",
    "MPS and libsluice on one GPU, or no MPS here", "one strategy for a GPU");
SL_ERROR_ALSO(CLAIM_NO_MPS, "request %s has strategy mps, which this node does not offer: use libsluice");
SL_ERROR(CLAIM_MPS_SHARES,
    "request %s is shared by MPS, and a container gets several devices by it (%s, %s), but an MPS client has one "
    "daemon and one limit: ask for one device in a container, or use another strategy",
    "`count: 2`, or two requests in one container, with `strategy: mps` or a GpuConfig with MPS",
    "write what the message says");
SL_ERROR(CLAIM_TWO_SHARES,
    "container %s uses shares of two claims (%.100s and %.100s), but a container is one tenant and would get one of "
    "them: write both shares as requests of one claim",
    "two claims with a share each in `resources.claims` of one container; the pod waits",
    "one claim with two requests; or one claim for each container");
SL_ERROR(MIG_NEEDS_RESET,
    "GPU %zu changes its MIG mode only when it is reset: drain the node, run `nvidia-smi -mig %d` and reset the GPU",
    "an Ampere card", "do what the message says");
SL_ERROR(MIG_IN_THE_WAY,
    "a MIG instance that Sluice did not make is in the place of %s: remove it (`nvidia-smi mig -dgi -gi %u`), or "
    "delete the pod, and its successor is placed again",
    "another program made an instance meanwhile", "do what the message says");
SL_ERROR_ALSO(MIG_NOT_MADE, "this agent does not make MIG instances");
SL_ERROR(MIG_ADMIN, "there is no MIG instance at %s: a request with adminAccess sees existing instances and makes none",
    "administrative access to an instance that no claim has made",
    "claim it, or look at the card (class `whole.gpu.sluice.io`)");
SL_ERROR(ALLOW_STRATEGY,
    "request %s asks for strategy %s, which does not enforce the share, and namespace %s may not use it: remove the "
    "strategy, or %s",
    "the administrator decides what claims and pods may ask for",
    "ask for less, or [have it allowed](dra.md#who-may-ask-for-what)");
SL_ERROR(RESIZE_OFF, "shares may not be resized here: %s",
    "the resize annotation goes further than the administrator allows; the share stays as it is",
    "ask for less, or [have it allowed](dra.md#who-may-ask-for-what)");
SL_ERROR_ALSO(RESIZE_MEMORY, "the share may have %s of memory at most, %s: ask for less, or %s");
SL_ERROR_ALSO(RESIZE_CORES, "the share may have %u %% of the GPU's time at most, %s: ask for less, or %s");
SL_ERROR_ALSO(RESIZE_LIMIT, "the share may use %u %% of an idle GPU at most: ask for less, or %s");
SL_ERROR(CLAIM_UNREAD, "cannot read claim %s/%s: %s",
    "the answer of the API server follows; 403: rights are missing", "the rights in [dra.md](dra.md)");
SL_ERROR_ALSO(POD_UNREAD, "cannot read pod %s/%.100s to see which container uses which claim: %s");
SL_ERROR(CLAIM_STATUS_LOG, "cannot write the status of a claim: %s",
    "the claim's `status.devices` is not written, its pod runs (log)", "the rights in [dra.md](dra.md)");
SL_ERROR(DRA_READING, "the node agent is still reading its GPUs",
    "the agent just started, or ends", "nothing: kubelet tries again");
SL_ERROR_ALSO(DRA_UNDOING, "the agent still undoes an earlier attempt");
SL_ERROR_ALSO(DRA_NO_API, "the node agent has no connection to the API server");
SL_ERROR_ALSO(DRA_ENDING, "the node agent is ending");
SL_ERROR(CHECKPOINT_DAMAGED, "%s is incomplete or was changed",
    "the disk lost the checkpoint; it is renamed, and nothing is cleaned up by it (log)",
    "restart pods whose GPU misbehaves");
SL_ERROR_ALSO(CHECKPOINT_ENTRIES, "%s has entries that cannot be read");
SL_ERROR(CHECKPOINT_VERSION, "%s has version %lld, but this program writes version %d: install the newer program again",
    "the agent was replaced by an older one", "the newer one, or drain the node and remove the file");
SL_ERROR(DRA_NAME_TAKEN,
    "another program serves gpu.nvidia.com on this node: remove NVIDIA's DRA driver; Sluice offers no GPU until it has "
    "ended, for two drivers would give out each GPU twice",
    "NVIDIA's DRA driver and the component nvidia-claims on one node", "remove one of them");
SL_ERROR(DRA_NODE_NAME, "the DRA driver needs the name of the node: set NODE_NAME",
    "options of the agent", "do what the message says");
SL_ERROR_ALSO(DRA_SOCKET_LONG, "%s or %s is too long for the path of a socket: name shorter directories");
SL_ERROR(ALLOW_COMPUTE,
    "request %s asks how GPU time is shared (compute: %s), which all tenants of a GPU have to follow: remove it from "
    "the claim; the administrator can set it in the DeviceClass",
    "a claim cannot decide for the other tenants of the GPU", "remove `compute` from the claim");
SL_ERROR(CHECKPOINT_UTF8, "the names of a claim are not UTF-8: the checkpoint cannot be written",
    "another program than the API server named the claim", "please report it");

#endif
