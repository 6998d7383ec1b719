/* SPDX-License-Identifier: Apache-2.0 */
#include "config/schema.h"

#include <stddef.h>

#include "base/cleanup.h"
#include "config/errors.h"

#define IN(field)      offsetof(struct sl_draft, field)
#define SHARED(field)  offsetof(struct sl_config_shared, field)
#define PATTERN(field) offsetof(struct sl_config_pattern, field)
#define SPACE(field)   offsetof(struct sl_config_allow_space, field)

static const char *const mig_words[] = {"none", "single", "mixed", NULL};
static const char *const id_words[] = {"uuid", "index", NULL};
static const char *const policy_words[] = {"distributed", "packed", NULL};
/* tegra and vfio are NVIDIA's too, but an agent that only speaks NVML cannot honour them: check.c */
static const char *const discovery_words[] = {"auto", "nvml", "tegra", "vfio", NULL};
static const char *const resize_words[] = {"never", "allocated", "free", NULL};
static const char *const list_words[] = {"envvar", "volume-mounts", "cdi-annotations", "cdi-cri",
                                         NULL};

#define SECTION(path_) {.path = (path_), .type = SL_TYPE_SECTION}

/* resources.gpus or resources.mig */
#define PATTERNS(path_, field)                                                                     \
    {.path = path_,                                                                                \
     .type = SL_TYPE_ITEMS,                                                                        \
     .offset = IN(field),                                                                          \
     .item_size = sizeof(struct sl_config_pattern)},                                               \
        {.path = path_ "[].pattern",                                                               \
         .type = SL_TYPE_STRING,                                                                   \
         .offset = PATTERN(pattern),                                                               \
         .required = SL_E_NO_PATTERN},                                                             \
    {                                                                                              \
        .path = path_ "[].name", .type = SL_TYPE_NAME, .offset = PATTERN(name),                    \
        .required = SL_E_NO_ADVERTISED_NAME                                                        \
    }

/* sharing.timeSlicing or sharing.mps. MPS with one replica is a card under an MPS server that one
 * pod's processes share; time-slicing with one is no sharing at all. */
#define BLOCK(path_, field, fail_, min_, max_)                                                     \
    SECTION(path_),                                                                                \
        {.path = path_ ".renameByDefault",                                                         \
         .type = SL_TYPE_BOOL,                                                                     \
         .offset = IN(field.rename_by_default),                                                    \
         .initial = "false"},                                                                      \
        {.path = path_ ".failRequestsGreaterThanOne",                                              \
         .type = SL_TYPE_BOOL,                                                                     \
         .offset = IN(field.fail_requests_greater_than_one),                                       \
         .initial = fail_},                                                                        \
        {.path = path_ ".resources",                                                               \
         .type = SL_TYPE_ITEMS,                                                                    \
         .offset = IN(field.shared),                                                               \
         .item_size = sizeof(struct sl_config_shared),                                             \
         .required = SL_E_NO_RESOURCES},                                                           \
        {.path = path_ ".resources[].name",                                                        \
         .type = SL_TYPE_NAME,                                                                     \
         .offset = SHARED(name),                                                                   \
         .required = SL_E_NO_SHARED_NAME},                                                         \
        {.path = path_ ".resources[].rename", .type = SL_TYPE_NAME, .offset = SHARED(rename)},     \
        {.path = path_ ".resources[].devices", .type = SL_TYPE_DEVICES},                           \
    {                                                                                              \
        .path = path_ ".resources[].replicas", .type = SL_TYPE_UNSIGNED,                           \
        .offset = SHARED(replicas), .min = (min_), .max = (max_), .required = SL_E_NO_REPLICAS     \
    }

/* What may be asked for: by all, or (at_, without anything said) more in a namespace. */
#define ALLOW(path_, at_, strategies_, priority_, burst_, resize_, to_)                            \
    {.path = path_ ".strategies",                                                                  \
     .type = SL_TYPE_STRATEGIES,                                                                   \
     .offset = at_(allow.strategies),                                                              \
     .initial = (strategies_),                                                                     \
     .words = sl_strategy_words},                                                                  \
        {.path = path_ ".priority",                                                                \
         .type = SL_TYPE_ENUM,                                                                     \
         .offset = at_(allow.priority),                                                            \
         .initial = (priority_),                                                                   \
         .words = sl_priority_words},                                                              \
        {.path = path_ ".burst",                                                                   \
         .type = SL_TYPE_UNSIGNED,                                                                 \
         .offset = at_(allow.burst),                                                               \
         .initial = (burst_),                                                                      \
         .max = 100},                                                                              \
        {.path = path_ ".resize",                                                                  \
         .type = SL_TYPE_ENUM,                                                                     \
         .offset = at_(allow.resize),                                                              \
         .initial = (resize_),                                                                     \
         .words = resize_words},                                                                   \
        {.path = path_ ".resizeTo",                                                                \
         .type = SL_TYPE_UNSIGNED,                                                                 \
         .offset = at_(allow.resize_to),                                                           \
         .initial = (to_),                                                                         \
         .max = 100}
#define OF_ALL(field) IN(c.fractional.field)

const struct sl_schema_row sl_schema[] = {
    {.path = "version", .type = SL_TYPE_VERSION, .initial = "v1"},

    SECTION("flags"),
    {.path = "flags.migStrategy",
     .type = SL_TYPE_ENUM,
     .offset = IN(c.mig_strategy),
     .initial = "none",
     .flag = "mig-strategy",
     .words = mig_words},
    {.path = "flags.failOnInitError",
     .type = SL_TYPE_BOOL,
     .offset = IN(c.fail_on_init_error),
     .initial = "true",
     .flag = "fail-on-init-error"},
    {.path = "flags.mpsRoot",
     .type = SL_TYPE_STRING,
     .offset = IN(c.mps_root),
     .initial = "/run/nvidia/mps",
     .flag = "mps-root"},
    {.path = "flags.nvidiaDriverRoot",
     .type = SL_TYPE_STRING,
     .offset = IN(c.driver_root),
     .initial = "/",
     .flag = "driver-root nvidia-driver-root",
     .env = "NVIDIA_DRIVER_ROOT"},
    {.path = "flags.nvidiaDevRoot",
     .type = SL_TYPE_STRING,
     .offset = IN(c.dev_root),
     .initial = "",
     .flag = "dev-root nvidia-dev-root",
     .env = "NVIDIA_DEV_ROOT"},
    {.path = "flags.gdrcopyEnabled",
     .type = SL_TYPE_BOOL,
     .offset = IN(c.gdrcopy),
     .initial = "false",
     .flag = "gdrcopy-enabled"},
    {.path = "flags.gdsEnabled",
     .type = SL_TYPE_BOOL,
     .offset = IN(c.gds),
     .initial = "false",
     .flag = "gds-enabled"},
    {.path = "flags.mofedEnabled",
     .type = SL_TYPE_BOOL,
     .offset = IN(c.mofed),
     .initial = "false",
     .flag = "mofed-enabled"},
    {.path = "flags.useNodeFeatureAPI",
     .type = SL_TYPE_BOOL,
     .offset = IN(c.use_node_feature_api),
     .initial = "true",
     .flag = "use-node-feature-api",
     .env = "GFD_USE_NODE_FEATURE_API USE_NODE_FEATURE_API"},
    {.path = "flags.deviceDiscoveryStrategy",
     .type = SL_TYPE_WORD,
     .offset = IN(c.discovery_strategy),
     .initial = "auto",
     .flag = "device-discovery-strategy",
     .words = discovery_words},

    SECTION("flags.plugin"),
    {.path = "flags.plugin.passDeviceSpecs",
     .type = SL_TYPE_BOOL,
     .offset = IN(c.pass_device_specs),
     .initial = "false",
     .flag = "pass-device-specs"},
    {.path = "flags.plugin.deviceListStrategy",
     .type = SL_TYPE_STRATEGIES,
     .offset = IN(c.list_strategy),
     .initial = "envvar",
     .flag = "device-list-strategy",
     .words = list_words},
    {.path = "flags.plugin.deviceIDStrategy",
     .type = SL_TYPE_ENUM,
     .offset = IN(c.id_strategy),
     .initial = "uuid",
     .flag = "device-id-strategy",
     .words = id_words},
    {.path = "flags.plugin.cdiAnnotationPrefix",
     .type = SL_TYPE_STRING,
     .offset = IN(c.cdi_annotation_prefix),
     .initial = "cdi.k8s.io/",
     .flag = "cdi-annotation-prefix"},
    {.path = "flags.plugin.nvidiaCTKPath",
     .type = SL_TYPE_STRING,
     .offset = IN(c.ctk_path),
     .initial = "/usr/bin/nvidia-ctk",
     .flag = "nvidia-cdi-hook-path nvidia-ctk-path",
     .env = "NVIDIA_CDI_HOOK_PATH NVIDIA_CTK_PATH"},
    {.path = "flags.plugin.containerDriverRoot",
     .type = SL_TYPE_STRING,
     .offset = IN(c.container_driver_root),
     .initial = "/driver-root",
     .flag = "driver-root-ctr-path container-driver-root",
     .env = "DRIVER_ROOT_CTR_PATH CONTAINER_DRIVER_ROOT"},
    {.path = "flags.plugin.sharedDevicesAllocationPolicy",
     .type = SL_TYPE_ENUM,
     .offset = IN(c.share_policy),
     .initial = "distributed",
     .flag = "shared-devices-allocation-policy",
     .words = policy_words},

    SECTION("flags.gfd"),
    {.path = "flags.gfd.oneshot",
     .type = SL_TYPE_BOOL,
     .offset = IN(c.gfd_oneshot),
     .initial = "false",
     .flag = "oneshot",
     .env = "GFD_ONESHOT"},
    {.path = "flags.gfd.noTimestamp",
     .type = SL_TYPE_BOOL,
     .offset = IN(c.gfd_no_timestamp),
     .initial = "false",
     .flag = "no-timestamp",
     .env = "GFD_NO_TIMESTAMP"},
    {.path = "flags.gfd.sleepInterval",
     .type = SL_TYPE_DURATION,
     .offset = IN(c.gfd_sleep_ns),
     .initial = "60s",
     .flag = "sleep-interval",
     .env = "GFD_SLEEP_INTERVAL"},
    {.path = "flags.gfd.outputFile",
     .type = SL_TYPE_STRING,
     .offset = IN(c.gfd_output_file),
     .initial = "/etc/kubernetes/node-feature-discovery/features.d/gfd",
     .flag = "output-file output",
     .env = "GFD_OUTPUT_FILE"},
    {.path = "flags.gfd.machineTypeFile",
     .type = SL_TYPE_STRING,
     .offset = IN(c.gfd_machine_type_file),
     .initial = "/sys/class/dmi/id/product_name",
     .flag = "machine-type-file",
     .env = "GFD_MACHINE_TYPE_FILE"},

    SECTION("resources"),
    PATTERNS("resources.gpus", gpus),
    PATTERNS("resources.mig", migs),

    SECTION("sharing"),
    BLOCK("sharing.timeSlicing", time_slicing, "false", 2, SL_MAX_REPLICAS),
    BLOCK("sharing.mps", mps, "true", 1, SL_MAX_MPS_CLIENTS),
    SECTION("sharing.fractional"),
    {.path = "sharing.fractional.enabled",
     .type = SL_TYPE_BOOL,
     .offset = IN(c.fractional.enabled),
     .initial = "false"},
    {.path = "sharing.fractional.slots",
     .type = SL_TYPE_UNSIGNED,
     .offset = IN(c.fractional.slots),
     .initial = "32",
     .min = 1,
     .max = SL_MAX_REPLICAS},
    {.path = "sharing.fractional.compute",
     .type = SL_TYPE_ENUM,
     .offset = IN(c.fractional.compute),
     .initial = "auto",
     .words = sl_compute_words},
    SECTION("sharing.fractional.memory"),
    {.path = "sharing.fractional.memory.min",
     .type = SL_TYPE_BYTES,
     .offset = IN(c.fractional.memory_min_bytes),
     .initial = "256Mi"},
    {.path = "sharing.fractional.memory.step",
     .type = SL_TYPE_BYTES,
     .offset = IN(c.fractional.memory_step_bytes),
     .initial = "1Mi"},
    SECTION("sharing.fractional.cores"),
    {.path = "sharing.fractional.cores.min",
     .type = SL_TYPE_UNSIGNED,
     .offset = IN(c.fractional.cores_min),
     .initial = "1",
     .min = 1,
     .max = 100},
    {.path = "sharing.fractional.cores.step",
     .type = SL_TYPE_UNSIGNED,
     .offset = IN(c.fractional.cores_step),
     .initial = "1",
     .min = 1,
     .max = 100},
    SECTION("sharing.fractional.allow"),
    ALLOW("sharing.fractional.allow", OF_ALL, "libsluice", "normal", "100", "allocated", "100"),
    {.path = "sharing.fractional.allow.namespaces",
     .type = SL_TYPE_ITEMS,
     .offset = IN(allow_spaces),
     .item_size = sizeof(struct sl_config_allow_space)},
    {.path = "sharing.fractional.allow.namespaces[].name",
     .type = SL_TYPE_STRING,
     .offset = SPACE(name),
     .required = SL_E_NO_NAMESPACE_NAME},
    ALLOW("sharing.fractional.allow.namespaces[]", SPACE, NULL, NULL, NULL, NULL, NULL),

    SECTION("imex"),
    {.path = "imex.channelIDs",
     .type = SL_TYPE_CHANNELS,
     .offset = IN(c.imex_channel0),
     .initial = "",
     .flag = "imex-channel-ids"},
    {.path = "imex.required",
     .type = SL_TYPE_BOOL,
     .offset = IN(c.imex_required),
     .initial = "false",
     .flag = "imex-required"},

    SECTION("health"),
    {.path = "health.ignoreXIDs",
     .type = SL_TYPE_XIDS,
     .offset = IN(ignore),
     .initial = "",
     .env = "DP_DISABLE_HEALTHCHECKS"},
    {.path = "health.watchXIDs",
     .type = SL_TYPE_XIDS,
     .offset = IN(watch),
     .initial = "",
     .env = "DP_ENABLE_HEALTHCHECKS"},
    {.path = "health.recoverAfter",
     .type = SL_TYPE_DURATION,
     .offset = IN(c.recover_ns),
     .initial = "60s"},
    {.path = "health.recoverAfterReset",
     .type = SL_TYPE_DURATION,
     .offset = IN(c.recover_reset_ns),
     .initial = "300s"},

    {.type = SL_TYPE_STRING,
     .offset = IN(c.kubelet_socket),
     .initial = "/var/lib/kubelet/device-plugins/kubelet.sock",
     .flag = "kubelet-socket"},
    {.type = SL_TYPE_STRING, .offset = IN(c.config_file), .initial = "", .flag = "config-file"},
    {.type = SL_TYPE_STRING,
     .offset = IN(c.cdi_feature_flags),
     .initial = "",
     .flag = "cdi-feature-flags"},
    {.type = SL_TYPE_STRING,
     .offset = IN(c.cdi_disable_hooks),
     .initial = "",
     .flag = "cdi-disable-hooks"},
};
const size_t sl_schema_count = SL_ARRAY_LEN(sl_schema);
_Static_assert(SL_ARRAY_LEN(sl_schema) <= SL_SCHEMA_MAX, "raise SL_SCHEMA_MAX");
