/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The node's configuration: NVIDIA's device plugin file (version v1), plus the settings of Sluice. Values come from the
 * command line, the environment, the file, the defaults, in that order.
 */
#ifndef SLUICE_CONFIG_CONFIG_H
#define SLUICE_CONFIG_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/err.h"
#include "base/json.h"
#include "share/share.h"

enum sl_mig_strategy { SL_MIG_NONE, SL_MIG_SINGLE, SL_MIG_MIXED };
/* Fractional: slots of a card, each with its own memory and time. libsluice enforces both. */
enum sl_sharing { SL_SHARING_NONE, SL_SHARING_TIME_SLICING, SL_SHARING_MPS, SL_SHARING_FRACTIONAL };
enum sl_id_strategy { SL_ID_UUID, SL_ID_INDEX };
enum sl_share_policy { SL_POLICY_DISTRIBUTED, SL_POLICY_PACKED };
/* The ways to give a container its GPU; several at once are allowed. */
enum sl_list_strategy {
    SL_LIST_ENVVAR = 1,
    SL_LIST_VOLUME_MOUNTS = 2,
    SL_LIST_CDI_ANNOTATIONS = 4,
    SL_LIST_CDI_CRI = 8,
};

/* A list of one of the structs below; a comment beside each list names the struct. */
struct sl_config_list {
    void *item;
    size_t count;
};

struct sl_xid_list {
    bool all;
    uint64_t *xid;
    size_t count;
};

/* One entry of resources.gpus or resources.mig: devices whose name matches become `name`. */
struct sl_config_pattern {
    char *pattern; /* with * and ? */
    char *name;    /* with its domain: "nvidia.com/gpu" */
};

/* One entry of sharing.<kind>.resources. */
struct sl_config_shared {
    char *name;   /* with its domain */
    char *rename; /* with its domain; NULL: as renameByDefault says */
    unsigned replicas;
    bool all_devices;
    unsigned device_count; /* the first n devices; 0: as `devices` lists, or all */
    char **devices;        /* "0", "0:1" (MIG), a UUID */
    size_t devices_count;
    unsigned line, column; /* where the entry stands in the file; 0: not from a file */
};

/* The requests that claims and pods may make beyond a plain share. All zero: none. */
enum sl_allow_resize {
    SL_ALLOW_NEVER,
    SL_ALLOW_ALLOCATED, /* up to the amount that the scheduler allocated */
    SL_ALLOW_FREE,      /* up to the amount that is free on the card */
};
struct sl_config_allow {
    unsigned strategies;       /* a bit for each enum sl_share_strategy */
    enum sl_priority priority; /* the highest */
    unsigned burst;            /* the highest limit of cores beyond the share, in percent */
    enum sl_allow_resize resize;
    unsigned resize_to; /* with SL_ALLOW_FREE: at most so many percent of a card */
};
struct sl_config_allow_space { /* more rights, in some namespaces */
    char *name;                /* with * and ? */
    struct sl_config_allow allow;
};
/* The default: only requests that libsluice can enforce, and none that takes from other tenants. */
#define SL_CONFIG_ALLOW_DEFAULT                                                                    \
    {.strategies = 1u << SL_SHARE_LIBSLUICE,                                                       \
     .priority = SL_PRIORITY_NORMAL,                                                               \
     .burst = 100,                                                                                 \
     .resize = SL_ALLOW_ALLOCATED,                                                                 \
     .resize_to = 100}

struct sl_config_fractional { /* sharing.fractional: a section of Sluice */
    bool enabled;
    uint64_t memory_min_bytes, memory_step_bytes;
    unsigned cores_min, cores_step; /* percent */
    enum sl_compute compute;        /* how the GPU time of fractions is shared */
    unsigned slots; /* device-plugin slots per GPU for fractions placed by the extender */
    struct sl_config_allow allow;
    struct sl_config_list allow_spaces; /* struct sl_config_allow_space */
};

struct sl_config_texts {
    char **text;
    size_t count;
};

/* One entry of sharing.vgpu: so many vGPUs of a type on each of these cards. */
struct sl_config_vgpu {
    char *name; /* the type: "NVIDIA L40S-8Q" */
    unsigned count;
    struct sl_config_texts devices; /* PCI addresses and UUIDs of cards; none: all that can */
};

enum sl_vm_by { SL_VM_AUTO, SL_VM_PLUGINS, SL_VM_CLAIMS };

struct sl_config_vm { /* vm: a section of Sluice. Devices for virtual machines */
    bool enabled;
    enum sl_vm_by by; /* how pods get them; auto: by claims where the agent serves claims */
    char *pci_ids;    /* names of PCI devices; "": where distributions put them */
    struct sl_config_list resources; /* struct sl_config_pattern: other names */
    struct sl_config_list vgpu;      /* sharing.vgpu: struct sl_config_vgpu */
};

struct sl_config {
    /* flags */
    enum sl_mig_strategy mig_strategy;
    bool fail_on_init_error;
    char *mps_root, *driver_root, *dev_root;
    bool gdrcopy, gds, mofed;
    bool use_node_feature_api;
    char *discovery_strategy; /* auto, nvml, tegra */
    /* flags.plugin */
    bool pass_device_specs;
    unsigned list_strategy; /* enum sl_list_strategy, ored */
    enum sl_id_strategy id_strategy;
    char *cdi_annotation_prefix, *ctk_path, *container_driver_root;
    enum sl_share_policy share_policy;
    /* flags.gfd */
    bool gfd_oneshot, gfd_no_timestamp;
    uint64_t gfd_sleep_ns; /* UINT64_MAX: infinite */
    char *gfd_output_file, *gfd_machine_type_file;
    /* resources */
    struct sl_config_list gpus, migs; /* struct sl_config_pattern */
    /* sharing */
    enum sl_sharing sharing;
    bool rename_by_default;
    bool fail_requests_greater_than_one;
    struct sl_config_shared *shared;
    size_t shared_count;
    struct sl_config_fractional fractional;
    struct sl_config_vm vm;
    /* imex */
    bool imex_channel0, imex_required;
    /* command line and environment only */
    char *kubelet_socket; /* kubelet's registration socket */
    char *config_file;
    char *cdi_feature_flags, *cdi_disable_hooks; /* accepted; our CDI specs have no hooks */
    /* health: a section of Sluice in the file, DP_DISABLE_HEALTHCHECKS and DP_ENABLE_HEALTHCHECKS in the environment */
    struct sl_xid_list ignored_xids;       /* application errors, and the user's XIDs; sorted */
    struct sl_xid_list watched_xids;       /* act on these even if all are ignored; sorted */
    uint64_t recover_ns, recover_reset_ns; /* quiet time after an XID; UINT64_MAX: for ever */
    bool health_checks;                    /* false: every XID is ignored */
};

/* The XIDs that NVIDIA's plugin ignores: errors of the application, not of the card. */
#define SL_APPLICATION_XIDS "13,31,43,45,68,109"
bool sl_config_xid_ignored(const struct sl_config *config, uint64_t xid);

/* The requests that are allowed in a namespace: the rights of all namespaces plus those of every matching entry. */
struct sl_config_allow sl_config_allowed(const struct sl_config *config, const char *name_space);
/* Does the text match the pattern, which may have * and ? in it? */
bool sl_config_match(const char *pattern, const char *text);
/* Raises each right of `allow` to that of `more`, where `more` is more generous. */
void sl_config_allow_add(struct sl_config_allow *allow, const struct sl_config_allow *more);

/* One setting from outside the file: a flag's long name ("mig-strategy"), which sl_config_is_flag() knows, and its text. */
struct sl_config_override {
    const char *flag;
    const char *value;
};

/*
 * Reads `text` (NULL: no file), then lays the environment (`environ`-like, may be NULL) and the command
 * line over it. `file` names the text in messages: "FILE:LINE:COLUMN: what, and what was probably meant".
 */
int sl_config_parse(const char *file, const char *text, size_t size, char *const *environ_list,
                    const struct sl_config_override *flags, size_t flags_count,
                    struct sl_config **ret, struct sl_err *err) SL_MUST_CHECK;
/* As above from a file on disk; config_file NULL or "" reads none. */
int sl_config_load(const char *config_file, char *const *environ_list,
                   const struct sl_config_override *flags, size_t flags_count,
                   struct sl_config **ret, struct sl_err *err) SL_MUST_CHECK;
void sl_config_free(struct sl_config *config); /* NULL is fine */

/* Do both have the same values? Lines and columns do not count. */
bool sl_config_equal(const struct sl_config *a, const struct sl_config *b);

/* "none", "time-slicing", "mps", "fractional" */
const char *sl_config_sharing_name(enum sl_sharing sharing);

/* The effective configuration as YAML that this parser reads back to the same value. */
void sl_config_print(const struct sl_config *config, FILE *out);
/* The same as a JSON object, which is YAML too; `key` as in base/json.h. */
void sl_config_json(const struct sl_config *config, const char *key, struct sl_json *j);

/* The value of a variable in an `environ`-like list; NULL: it is not there. */
const char *sl_config_variable(char *const *environ_list, const char *name);
/* Is `name` a flag, and does it take a value? For the command line's parser. */
bool sl_config_is_flag(const char *name, bool *ret_takes_value);
/* The flag, or the name in `more` (ends with NULL), that was probably meant; false: no name is
 * similar. */
bool sl_config_closest_flag(const char *name, const char *const *more, char *buf, size_t size);

#endif
