/* SPDX-License-Identifier: Apache-2.0 */
#include "config/schema.h"

#include <stddef.h>

#include "base/cleanup.h"
#include "config/errors.h"

#define IN(field)      offsetof(struct sl_draft, field)
#define SHARED(field)  offsetof(struct sl_config_shared, field)
#define PATTERN(field) offsetof(struct sl_config_pattern, field)
#define VGPU(field)    offsetof(struct sl_config_vgpu, field)
#define SPACE(field)   offsetof(struct sl_config_allow_space, field)

static const char *const mig_words[] = {"none", "single", "mixed", NULL};
static const char *const id_words[] = {"uuid", "index", NULL};
static const char *const policy_words[] = {"distributed", "packed", NULL};
/* tegra and vfio are NVIDIA's words too, but an agent that only speaks NVML cannot honour them: check.c */
static const char *const discovery_words[] = {"auto", "nvml", "tegra", "vfio", NULL};
static const char *const vm_words[] = {"auto", "plugins", "claims", NULL};
static const char *const resize_words[] = {"never", "allocated", "free", NULL};
static const char *const list_words[] = {"envvar", "volume-mounts", "cdi-annotations", "cdi-cri",
                                         NULL};

#define ROW(path_, type_, offset_, initial_, ...)                                                  \
    {.path = (path_),                                                                              \
     .type = SL_TYPE_##type_,                                                                      \
     .offset = (offset_),                                                                          \
     .initial = (initial_),                                                                        \
     __VA_ARGS__}
#define SECTION(path_) ROW(path_, SECTION, 0, NULL)

/* resources.gpus or resources.mig */
#define PATTERNS(path_, field)                                                                     \
    ROW(path_, ITEMS, IN(field), NULL, .item_size = sizeof(struct sl_config_pattern)),             \
        ROW(path_ "[].pattern", STRING, PATTERN(pattern), NULL, .required = SL_E_NO_PATTERN),      \
        ROW(path_ "[].name", NAME, PATTERN(name), NULL, .required = SL_E_NO_ADVERTISED_NAME)

/* sharing.timeSlicing or sharing.mps. MPS with one replica is a card under an MPS server, shared by the processes of
 * one pod; time-slicing with one replica is no sharing at all. */
#define BLOCK(path_, field, fail_, min_, max_)                                                     \
    SECTION(path_), ROW(path_ ".renameByDefault", BOOL, IN(field.rename_by_default), "false"),     \
        ROW(path_ ".failRequestsGreaterThanOne", BOOL, IN(field.fail_requests_greater_than_one),   \
            fail_),                                                                                \
        ROW(path_ ".resources", ITEMS, IN(field.shared), NULL,                                     \
            .item_size = sizeof(struct sl_config_shared), .required = SL_E_NO_RESOURCES),          \
        ROW(path_ ".resources[].name", NAME, SHARED(name), NULL, .required = SL_E_NO_SHARED_NAME), \
        ROW(path_ ".resources[].rename", NAME, SHARED(rename), NULL),                              \
        ROW(path_ ".resources[].devices", DEVICES, 0, NULL),                                       \
        ROW(path_ ".resources[].replicas", UNSIGNED, SHARED(replicas), NULL, .min = (min_),        \
            .max = (max_), .required = SL_E_NO_REPLICAS)

/* The rights of all namespaces, or (at_, with no defaults) the additional rights of one namespace. */
#define ALLOW(path_, at_, strategies_, priority_, burst_, resize_, to_)                            \
    ROW(path_ ".strategies", STRATEGIES, at_(allow.strategies), strategies_,                       \
        .words = sl_strategy_words),                                                               \
        ROW(path_ ".priority", ENUM, at_(allow.priority), priority_, .words = sl_priority_words),  \
        ROW(path_ ".burst", UNSIGNED, at_(allow.burst), burst_, .max = 100),                       \
        ROW(path_ ".resize", ENUM, at_(allow.resize), resize_, .words = resize_words),             \
        ROW(path_ ".resizeTo", UNSIGNED, at_(allow.resize_to), to_, .max = 100)
#define OF_ALL(field) IN(c.fractional.field)

const struct sl_schema_row sl_schema[] = {
    ROW("version", VERSION, 0, "v1"),

    SECTION("flags"),
    ROW("flags.migStrategy", ENUM, IN(c.mig_strategy), "none", .flag = "mig-strategy",
        .words = mig_words),
    ROW("flags.failOnInitError", BOOL, IN(c.fail_on_init_error), "true",
        .flag = "fail-on-init-error"),
    ROW("flags.mpsRoot", STRING, IN(c.mps_root), "/run/nvidia/mps", .flag = "mps-root"),
    ROW("flags.nvidiaDriverRoot", STRING, IN(c.driver_root), "/",
        .flag = "driver-root nvidia-driver-root", .env = "NVIDIA_DRIVER_ROOT"),
    ROW("flags.nvidiaDevRoot", STRING, IN(c.dev_root), "", .flag = "dev-root nvidia-dev-root",
        .env = "NVIDIA_DEV_ROOT"),
    ROW("flags.gdrcopyEnabled", BOOL, IN(c.gdrcopy), "false", .flag = "gdrcopy-enabled"),
    ROW("flags.gdsEnabled", BOOL, IN(c.gds), "false", .flag = "gds-enabled"),
    ROW("flags.mofedEnabled", BOOL, IN(c.mofed), "false", .flag = "mofed-enabled"),
    ROW("flags.useNodeFeatureAPI", BOOL, IN(c.use_node_feature_api), "true",
        .flag = "use-node-feature-api", .env = "GFD_USE_NODE_FEATURE_API USE_NODE_FEATURE_API"),
    ROW("flags.deviceDiscoveryStrategy", WORD, IN(c.discovery_strategy), "auto",
        .flag = "device-discovery-strategy", .words = discovery_words),

    SECTION("flags.plugin"),
    ROW("flags.plugin.passDeviceSpecs", BOOL, IN(c.pass_device_specs), "false",
        .flag = "pass-device-specs"),
    ROW("flags.plugin.deviceListStrategy", STRATEGIES, IN(c.list_strategy), "envvar",
        .flag = "device-list-strategy", .words = list_words),
    ROW("flags.plugin.deviceIDStrategy", ENUM, IN(c.id_strategy), "uuid",
        .flag = "device-id-strategy", .words = id_words),
    ROW("flags.plugin.cdiAnnotationPrefix", STRING, IN(c.cdi_annotation_prefix), "cdi.k8s.io/",
        .flag = "cdi-annotation-prefix"),
    ROW("flags.plugin.nvidiaCTKPath", STRING, IN(c.ctk_path), "/usr/bin/nvidia-ctk",
        .flag = "nvidia-cdi-hook-path nvidia-ctk-path",
        .env = "NVIDIA_CDI_HOOK_PATH NVIDIA_CTK_PATH"),
    ROW("flags.plugin.containerDriverRoot", STRING, IN(c.container_driver_root), "/driver-root",
        .flag = "driver-root-ctr-path container-driver-root",
        .env = "DRIVER_ROOT_CTR_PATH CONTAINER_DRIVER_ROOT"),
    ROW("flags.plugin.sharedDevicesAllocationPolicy", ENUM, IN(c.share_policy), "distributed",
        .flag = "shared-devices-allocation-policy", .words = policy_words),

    SECTION("flags.gfd"),
    ROW("flags.gfd.oneshot", BOOL, IN(c.gfd_oneshot), "false", .flag = "oneshot",
        .env = "GFD_ONESHOT"),
    ROW("flags.gfd.noTimestamp", BOOL, IN(c.gfd_no_timestamp), "false", .flag = "no-timestamp",
        .env = "GFD_NO_TIMESTAMP"),
    ROW("flags.gfd.sleepInterval", DURATION, IN(c.gfd_sleep_ns), "60s", .flag = "sleep-interval",
        .env = "GFD_SLEEP_INTERVAL"),
    ROW("flags.gfd.outputFile", STRING, IN(c.gfd_output_file),
        "/etc/kubernetes/node-feature-discovery/features.d/gfd", .flag = "output-file output",
        .env = "GFD_OUTPUT_FILE"),
    ROW("flags.gfd.machineTypeFile", STRING, IN(c.gfd_machine_type_file),
        "/sys/class/dmi/id/product_name", .flag = "machine-type-file",
        .env = "GFD_MACHINE_TYPE_FILE"),

    SECTION("resources"),
    PATTERNS("resources.gpus", c.gpus),
    PATTERNS("resources.mig", c.migs),

    SECTION("sharing"),
    BLOCK("sharing.timeSlicing", time_slicing, "false", 2, SL_MAX_REPLICAS),
    BLOCK("sharing.mps", mps, "true", 1, SL_MAX_MPS_CLIENTS),
    SECTION("sharing.fractional"),
    ROW("sharing.fractional.enabled", BOOL, IN(c.fractional.enabled), "false"),
    ROW("sharing.fractional.slots", UNSIGNED, IN(c.fractional.slots), "32", .min = 1,
        .max = SL_MAX_REPLICAS),
    ROW("sharing.fractional.compute", ENUM, IN(c.fractional.compute), "auto",
        .words = sl_compute_words),
    SECTION("sharing.fractional.memory"),
    ROW("sharing.fractional.memory.min", BYTES, IN(c.fractional.memory_min_bytes), "256Mi"),
    ROW("sharing.fractional.memory.step", BYTES, IN(c.fractional.memory_step_bytes), "1Mi"),
    SECTION("sharing.fractional.cores"),
    ROW("sharing.fractional.cores.min", UNSIGNED, IN(c.fractional.cores_min), "1", .min = 1,
        .max = 100),
    ROW("sharing.fractional.cores.step", UNSIGNED, IN(c.fractional.cores_step), "1", .min = 1,
        .max = 100),
    SECTION("sharing.fractional.allow"),
    ALLOW("sharing.fractional.allow", OF_ALL, "libsluice", "normal", "100", "allocated", "100"),
    ROW("sharing.fractional.allow.namespaces", ITEMS, IN(c.fractional.allow_spaces), NULL,
        .item_size = sizeof(struct sl_config_allow_space)),
    ROW("sharing.fractional.allow.namespaces[].name", STRING, SPACE(name), NULL,
        .required = SL_E_NO_NAMESPACE_NAME),
    ALLOW("sharing.fractional.allow.namespaces[]", SPACE, NULL, NULL, NULL, NULL, NULL),

    ROW("sharing.vgpu", ITEMS, IN(c.vm.vgpu), NULL, .item_size = sizeof(struct sl_config_vgpu)),
    ROW("sharing.vgpu[].name", STRING, VGPU(name), NULL, .required = SL_E_NO_VGPU_NAME),
    ROW("sharing.vgpu[].count", UNSIGNED, VGPU(count), NULL, .min = 1, .max = SL_MAX_VGPUS,
        .required = SL_E_NO_VGPU_COUNT),
    ROW("sharing.vgpu[].devices", CARDS, VGPU(devices), NULL),

    SECTION("vm"),
    ROW("vm.enabled", BOOL, IN(c.vm.enabled), "false"),
    ROW("vm.by", ENUM, IN(c.vm.by), "auto", .words = vm_words),
    ROW("vm.pciIDs", STRING, IN(c.vm.pci_ids), ""),
    ROW("vm.resources", ITEMS, IN(c.vm.resources), NULL,
        .item_size = sizeof(struct sl_config_pattern)),
    ROW("vm.resources[].pattern", STRING, PATTERN(pattern), NULL, .required = SL_E_NO_VM_PATTERN),
    ROW("vm.resources[].name", VM_NAME, PATTERN(name), NULL, .required = SL_E_NO_VM_NAME),

    SECTION("imex"),
    ROW("imex.channelIDs", CHANNELS, IN(c.imex_channel0), "", .flag = "imex-channel-ids"),
    ROW("imex.required", BOOL, IN(c.imex_required), "false", .flag = "imex-required"),

    SECTION("health"),
    ROW("health.ignoreXIDs", XIDS, IN(c.ignored_xids), "", .env = "DP_DISABLE_HEALTHCHECKS"),
    ROW("health.watchXIDs", XIDS, IN(c.watched_xids), "", .env = "DP_ENABLE_HEALTHCHECKS"),
    ROW("health.recoverAfter", DURATION, IN(c.recover_ns), "60s"),
    ROW("health.recoverAfterReset", DURATION, IN(c.recover_reset_ns), "300s"),

    ROW(NULL, STRING, IN(c.kubelet_socket), "/var/lib/kubelet/device-plugins/kubelet.sock",
        .flag = "kubelet-socket"),
    ROW(NULL, STRING, IN(c.config_file), "", .flag = "config-file"),
    ROW(NULL, STRING, IN(c.cdi_feature_flags), "", .flag = "cdi-feature-flags"),
    ROW(NULL, STRING, IN(c.cdi_disable_hooks), "", .flag = "cdi-disable-hooks"),
};
const size_t sl_schema_count = SL_ARRAY_LEN(sl_schema);
_Static_assert(SL_ARRAY_LEN(sl_schema) <= SL_SCHEMA_MAX, "raise SL_SCHEMA_MAX");
