/* SPDX-License-Identifier: Apache-2.0 */
/* The messages of this room: see base/errtable.h. */
/* clang-format off */
#ifndef SLUICE_CONFIG_ERRORS_H
#define SLUICE_CONFIG_ERRORS_H

#include "base/errtable.h"

SL_ERROR_PART("config");

SL_ERROR(YAML_BAD, "this is not YAML: %s%s%s",
    "the text of libyaml follows; often a tab, or wrong indentation", "use spaces only; JSON is accepted too");
SL_ERROR(KEY_UNKNOWN, "unknown key \"%.60s\"%s%s: %s",
    "a typing error, or a key in the wrong place",
    "the message names the key that was probably meant, or the place of the key");
SL_ERROR(KEY_TWICE, "key \"%s\" is given twice: keep one of them",
    "the same key stands twice in one place", "keep one of them");
SL_ERROR(NEEDS_MAPPING, "%s%smust consist of keys and values, for example \"key: value\"",
    "the value has another form than the key needs",
    "write it as the message says; [config.md](config.md) shows every key");
SL_ERROR_ALSO(NEEDS_ONE_VALUE, "%s takes one value, not %s");
SL_ERROR_ALSO(NEEDS_LIST, "%s must be a list: begin each entry with \"- \"");
SL_ERROR_ALSO(NEEDS_CHANNELS, "%s must be a list: write [] or [0]");
SL_ERROR_ALSO(NEEDS_PLAIN_ITEMS, "%s: each entry of the list must be one value");
SL_ERROR_ALSO(LIST_EMPTY, "%s: the list is empty: name at least one, or remove the key");
SL_ERROR_ALSO(KEY_NOT_A_WORD, "a key must be one word, not a list or a mapping");
SL_ERROR(LIST_LONG, "%s has %zu entries: at most %d are allowed",
    "hundreds of entries", "write fewer entries");
SL_ERROR(SECOND_DOCUMENT, "a second YAML document begins here: a configuration file contains one document",
    "a line `---` in the middle of the file", "keep one document");
SL_ERROR(CONFIG_LARGE, "%.200s is larger than 1 MiB, the most that a ConfigMap can hold: is this the right file?",
    "the file is not a configuration", "name the right file");
SL_ERROR(VERSION_UNKNOWN, "\"%.40s\" is not known: write version: v1",
    "another version of the file format", "`version: v1`");
SL_ERROR(WORD_UNKNOWN_NEAR, "\"%.40s\" is not known: did you mean \"%s\"? Possible values: %s",
    "the value is not one of the possible words", "write one of the words in the message");
SL_ERROR_ALSO(WORD_UNKNOWN, "\"%.40s\" is not known: possible values: %s");
SL_ERROR(BOOL_QUOTED, "\"%.40s\" is a text: write true or false without quotes",
    "the value has another type than the key needs", "write `true` or `4` without quotes");
SL_ERROR_ALSO(BOOL_MISSING, "the value is missing: write true or false");
SL_ERROR_ALSO(BOOL_BAD, "\"%.40s\" is not true or false");
SL_ERROR_ALSO(NUMBER_QUOTED, "\"%.40s\" is a text: write the number without quotes");
SL_ERROR_ALSO(NUMBER_BAD, "\"%.40s\" is not a whole number");
SL_ERROR(NUMBER_LOW, "%.20s is too low: at least %u%s",
    "replicas are 2 to 1024 for time-slicing and 1 to 60 for MPS; cores are 1 to 100", "a number within these limits");
SL_ERROR_ALSO(NUMBER_HIGH, "%.20s is too high: at most %u%s");
SL_ERROR(NOT_ASCII, "\"%.40s\" has characters other than printable ASCII",
    "letters beyond ASCII, or control characters", "use plain letters");
SL_ERROR(NO_RESOURCES,
    "no resources: list the resources that are shared, for example\nresources: [{name: nvidia.com/gpu, replicas: 4}]",
    "a required key is missing", "add the key");
SL_ERROR_ALSO(NO_SHARED_NAME, "no name: name the resource that is shared, for example name: nvidia.com/gpu");
SL_ERROR_ALSO(NO_REPLICAS, "no replicas: write the number of shares of each device, for example replicas: 4");
SL_ERROR_ALSO(NO_PATTERN, "no pattern: write which devices are meant, for example pattern: \"*H200*\"");
SL_ERROR_ALSO(NO_ADVERTISED_NAME, "no name: write the resource name to advertise, for example name: gpu-large");
SL_ERROR_ALSO(NO_VGPU_NAME, "no name: name the type of the vGPUs, for example name: NVIDIA L40S-8Q");
SL_ERROR_ALSO(NO_VGPU_COUNT, "no count: write how many vGPUs each card has, for example count: 4");
SL_ERROR_ALSO(NO_VM_PATTERN,
    "no pattern: write which devices are meant, for example pattern: \"10de:2335\" or \"NVIDIA L40S-*\"");
SL_ERROR_ALSO(NO_VM_NAME, "no name: write the resource name to advertise, for example name: nvidia.com/H200");
SL_ERROR_ALSO(NO_NAMESPACE_NAME, "no name: write which namespaces are meant, for example name: \"team-*\"");
SL_ERROR(AMOUNT_OF_CARD, "\"%.40s\" depends on the size of the card: write an amount, for example 1Gi",
    "`25%` where an amount is needed", "`1Gi`");
SL_ERROR(DURATION_BAD, "\"%.40s\" is not a time: write 60s, 5m, 1h30m or infinite",
    "the unit is missing", "`60s`");
SL_ERROR(CHANNEL_BAD, "\"%.40s\": only IMEX channel 0 is supported: write [] or [0]",
    "`imex.channelIDs`", "`[]` or `[0]`");
SL_ERROR(XID_BAD, "\"%.40s\" is not an XID: write numbers, or all",
    "`health`, `DP_DISABLE_HEALTHCHECKS`, `DP_ENABLE_HEALTHCHECKS`",
    "numbers with commas between them, `all` or `xids`");
SL_ERROR(DEVICES_BAD, "\"%.40s\" is neither \"all\", nor a count from 1 to 64, nor a list: [0, \"1:0\", GPU-...]",
    "`devices` has another form", "`all`, `2`, `[0, \"1:0\", GPU-…]`");
SL_ERROR_ALSO(DEVICE_BAD,
    "\"%.60s\" is not a device: write an index (0), a MIG device of a card (\"0:1\") or a UUID (GPU-... or MIG-...)");
SL_ERROR_ALSO(CARD_BAD, "\"%.60s\" is not a card: write a PCI address (0000:3b:00.0) or a UUID (GPU-...)");
SL_ERROR_ALSO(DEVICE_TWICE, "device %.60s is listed twice: list it once");
SL_ERROR(RESOURCE_DOMAIN, "resource name \"%.80s\" is not in nvidia.com/: write only the part after the slash",
    "Kubernetes would refuse the name, or it has more than 63 characters with `nvidia.com/`",
    "a shorter or simpler name");
SL_ERROR_ALSO(RESOURCE_EMPTY, "the resource name is empty: write for example nvidia.com/gpu");
SL_ERROR_ALSO(RESOURCE_LONG, "resource name \"%s%.90s\" is %zu characters long: at most %d are allowed");
SL_ERROR_ALSO(RESOURCE_BAD,
    "resource name \"%.80s\" is not valid: use lower-case letters and digits, with '-' and '.' between them");
SL_ERROR_ALSO(VM_RESOURCE_BAD,
    "resource name \"%.80s\" is not valid: use letters and digits, with '-', '_' and '.' between them");
SL_ERROR(VGPU_OFF, "sharing.vgpu has no effect without vm: {enabled: true}: add it, or remove sharing.vgpu",
    "vGPUs are for virtual machines, which are off", "`vm: {enabled: true}`");
SL_ERROR(VGPU_TWICE, "sharing.vgpu: %.60s is listed twice for the same card: write one entry, or different devices",
    "two entries for the same cards", "one entry");
SL_ERROR(VM_NAME_TAKEN, "vm.resources: %.80s is a resource of containers: choose another name",
    "one resource cannot mean a card in a container and a card in a virtual machine", "another name");
SL_ERROR(RESOURCE_RENAMED_LONG,
    "resource name \"%s%s\" is %zu characters long: at most %d are allowed; choose a name with rename",
    "`renameByDefault` appends `.shared`, which makes the name too long", "set `rename`");
SL_ERROR(TWO_WAYS_TO_SHARE, "%s and %s (line %u) are two ways to share the same GPUs: keep one of them",
    "two of `timeSlicing`, `mps`, `fractional`", "keep one");
SL_ERROR(RESOURCE_SHARED_TWICE,
    "%s is shared twice (first on line %u): list different devices in each entry, or write one entry",
    "two entries for the same devices", "list different `devices` in each entry");
SL_ERROR_ALSO(DEVICE_SHARED_TWICE, "device %s of %s is shared twice (first on line %u): list it in one entry");
SL_ERROR_ALSO(DEVICE_SHARED_AGAIN, "device %s is shared twice (first on line %u): list it in one entry");
SL_ERROR(MIG_AND_MPS,
    "migStrategy mixed and sharing.mps exclude each other, because MPS cannot divide MIG devices: use timeSlicing for "
    "them, or no MIG",
    "MPS divides cards, not MIG devices", "`timeSlicing` for MIG devices");
SL_ERROR(DISCOVERY_UNKNOWN, "deviceDiscoveryStrategy \"%s\": this agent finds GPUs by NVML only: write auto or nvml",
    "`tegra` and `vfio` are not supported", "`auto`");
SL_ERROR(NO_SUCH_GPU_INDEX, "devices: there is no GPU %zu: this node has %zu GPUs",
    "an index that this node does not have", "a smaller index, or UUIDs (a UUID may belong to another node)");
SL_ERROR_ALSO(NO_SUCH_MIG_INDEX, "devices: there is no MIG device %s: GPU %zu has %zu MIG devices");
SL_ERROR(MPS_CLIENTS, "%u replicas of GPU %zu are too many: an MPS server takes at most %u clients there (%s)",
    "at most 48 clients, 60 from CUDA 13.1 on, 16 on cards before Volta", "fewer replicas");
SL_ERROR(NAME_TAKEN, "%s and %s would both be advertised as %s: give one of them another name",
    "`rename` uses a name that another resource has", "another name");
SL_ERROR(TOO_MANY_DEVICES,
    "%s would have more than %d devices, which is more than kubelet can take: use fewer replicas",
    "too many replicas", "fewer replicas");

SL_ERROR_PART("config-warnings");

SL_ERROR(WARN_GPU_SILENT, "GPU %zu does not answer and never did: it is not advertised",
    "the device cannot be offered", "look at the card with `nvidia-smi`");
SL_ERROR_ALSO(WARN_GPU_UUID, "GPU %zu is not advertised, because its UUID is too long for kubelet");
SL_ERROR_ALSO(WARN_MIG_UUID, "GPU %zu: MIG device %zu is not advertised, because its UUID is too long for kubelet");
SL_ERROR_ALSO(WARN_MIG_PROFILE,
    "GPU %zu: the MIG profile %s is too long for a resource name: MIG device %zu is not advertised");
SL_ERROR(WARN_MIG_EMPTY,
    "GPU %zu is in MIG mode and has no MIG devices: it is not advertised until a MIG device is made",
    "MIG is on, but the card has no MIG instances", "make MIG devices, or switch MIG off");
SL_ERROR(WARN_MIG_NONE,
    "GPU %zu is in MIG mode, but migStrategy is none: it is advertised as a whole card, and programs find at most one "
    "MIG device on it",
    "`migStrategy: none`", "set `migStrategy` to `single` or `mixed`");
SL_ERROR(WARN_NOT_MIG,
    "GPU %zu is not in MIG mode, and with migStrategy single %s means a %s here: the card is not advertised (use "
    "mixed, or name the card in resources.gpus)",
    "with `single`, `nvidia.com/gpu` means one kind of device", "`migStrategy: mixed`, or a name in `resources.gpus`");
SL_ERROR(WARN_MIG_TYPES,
    "migStrategy is single and there are several types of MIG devices: %s means a %s here; the others are advertised "
    "under their own names, as with mixed",
    "the most frequent type is `nvidia.com/gpu`", "nothing, or `migStrategy: mixed`");
SL_ERROR(WARN_MIG_PART,
    "GPU %zu: MIG device %zu is a %s, a part of a GPU instance, and has no resource name of its own: it is not "
    "advertised (name it in resources.mig to advertise it)",
    "for example `1c.3g.40gb`", "name the profile in `resources.mig`");
SL_ERROR(WARN_MPS_MIG, "%s are MIG devices, which MPS cannot divide: they are advertised whole",
    "`sharing.mps` names MIG devices", "`timeSlicing` for MIG devices");
SL_ERROR(WARN_SHARED_NONE, "%s should be shared, but this node has no such device",
    "the file names devices that this node does not have", "nothing, where one file serves several nodes");
SL_ERROR_ALSO(WARN_SHARED_DEVICE, "device %s should be shared as %s, but this node has no such %s");
SL_ERROR_ALSO(WARN_SHARED_FEWER, "%u devices of %s should be shared, but this node has %zu");
SL_ERROR(WARN_MIXED_NAME,
    "%s means %zu whole devices and %zu shares: a pod may get either (give the shares another name with rename or "
    "renameByDefault)",
    "one resource name for whole devices and shares", "`rename` or `renameByDefault`");

#endif
