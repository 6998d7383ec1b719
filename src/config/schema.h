/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One table of all settings: the name of a setting in the file, on the command line and in the
 * environment, its possible values, its default, and where it is kept. Reading, overriding,
 * printing, comparing, suggesting and documenting use this table.
 */
#ifndef SLUICE_CONFIG_SCHEMA_H
#define SLUICE_CONFIG_SCHEMA_H

#include "config/config.h"

enum sl_schema_type {
    SL_TYPE_SECTION,    /* a mapping; its rows have longer paths */
    SL_TYPE_ITEMS,      /* a list of mappings; its rows have "[]" in their paths */
    SL_TYPE_VERSION,    /* the file's version: checked, not kept */
    SL_TYPE_BOOL,       /* bool */
    SL_TYPE_ENUM,       /* an enum whose values count from 0, as `words` do */
    SL_TYPE_WORD,       /* char *, one of `words` */
    SL_TYPE_STRING,     /* char * */
    SL_TYPE_NAME,       /* char *, a resource name; gains its domain */
    SL_TYPE_VM_NAME,    /* the same, also with capitals and underscores */
    SL_TYPE_UNSIGNED,   /* unsigned, from min to max */
    SL_TYPE_BYTES,      /* uint64_t: 1Gi */
    SL_TYPE_DURATION,   /* uint64_t nanoseconds: 60s, infinite */
    SL_TYPE_STRATEGIES, /* unsigned, the `words` ored; one, or a list */
    SL_TYPE_CHANNELS,   /* bool: [] or [0] */
    SL_TYPE_DEVICES,    /* in struct sl_config_shared: all, a count, a list */
    SL_TYPE_CARDS,      /* struct sl_config_texts: a list of PCI addresses and UUIDs */
    SL_TYPE_XIDS,       /* struct sl_xid_list: all, a list, numbers with commas */
};

/* Where a value was written: in the file (line > 0), or `from` ("--mig-strategy", "MIG_STRATEGY"). */
struct sl_origin {
    char from[40];
    unsigned line, column; /* from 1 */
};

struct sl_draft_block { /* sharing.timeSlicing or sharing.mps */
    bool rename_by_default, fail_requests_greater_than_one;
    struct sl_config_list shared; /* struct sl_config_shared */
};

#define SL_SCHEMA_MAX 96

/* A configuration being put together. The rows' offsets are into this. */
struct sl_draft {
    struct sl_config c;
    struct sl_draft_block time_slicing, mps;
    const char *file;
    struct sl_origin origin[SL_SCHEMA_MAX]; /* by row; line 0 and no `from`: the default */
};

struct sl_schema_row {
    const char *path; /* NULL: not in the file */
    enum sl_schema_type type;
    size_t offset;       /* in struct sl_draft, or in the item for rows with "[]" */
    const char *initial; /* as a user would write it; NULL: zero */
    const char *flag;    /* without dashes, aliases separated by spaces; NULL: none */
    const char *env;     /* as `flag`; NULL: the first flag in upper snake case */
    const char *const *words;
    uint64_t min, max;
    size_t item_size;     /* SL_TYPE_ITEMS */
    const char *required; /* the message for a missing key */
};

extern const struct sl_schema_row sl_schema[];
extern const size_t sl_schema_count;

/* The row `key` of the section or item `parent` ("" is the file, "a.b[]" an item of a.b). */
const struct sl_schema_row *sl_schema_child(const char *parent, const char *key, size_t key_len);
const struct sl_schema_row *sl_schema_path(const char *path);
const struct sl_schema_row *sl_schema_flag(const char *flag);
/* Is `path` directly in `parent`? Returns its key, or NULL. */
const char *sl_schema_key_in(const char *path, const char *parent);
static inline size_t sl_schema_index(const struct sl_schema_row *row)
{
    return (size_t)(row - sl_schema);
}

/* The n-th name in a list with spaces between; false when there are fewer. */
bool sl_schema_name(const char *names, size_t n, char *buf, size_t size);
/* The n-th environment variable of a row. */
bool sl_schema_env(const struct sl_schema_row *row, size_t n, char *buf, size_t size);

/* The hint for an unknown key: "did you mean …?", the place where the key belongs, or the keys
 * that exist there. */
void sl_schema_suggest(const char *parent, const char *key, char *buf, size_t size);

/* Sets "FILE:LINE:COLUMN: text" or "--flag: text" and returns code. */
int sl_config_fail(const struct sl_draft *d, struct sl_origin at, struct sl_err *err, int code,
                   const char *fmt, ...) SL_PRINTF(5, 6);

/* The same for a text that is already formatted. A long file name is cut at its beginning. */
int sl_config_locate(const char *file, const struct sl_origin *at, const char *text,
                     struct sl_err *err, int code);

/* A scalar: where it stands and how it was written. */
struct sl_scalar {
    const char *text;
    size_t len;
    bool quoted;  /* in the file, in quotes */
    bool outside; /* not in the file: no quotes there, and lists have commas */
    struct sl_origin at;
};

/* --- values.c: one value into, out of and between structs --- */
int sl_value_set(const struct sl_draft *d, const struct sl_schema_row *row, void *base,
                 const struct sl_scalar *s, struct sl_err *err) SL_MUST_CHECK;
/* Adds one element (outside the file: several, with commas) to a list; see sl_value_is_list. */
int sl_value_add(const struct sl_draft *d, const struct sl_schema_row *row, void *base,
                 const struct sl_scalar *s, struct sl_err *err) SL_MUST_CHECK;
/* May the value be a list: STRATEGIES, CHANNELS, DEVICES, XIDS? */
bool sl_value_is_list(enum sl_schema_type type);
/* Frees the value and sets the field to zero, before a value is set again. */
void sl_value_clear(const struct sl_schema_row *row, void *base);
bool sl_value_equal(const struct sl_schema_row *row, const void *a, const void *b);
/* `null`, `~` or nothing at all. */
bool sl_scalar_is_null(const struct sl_scalar *s);

/* --- layers.c: settings from outside the file --- */
int sl_layer_defaults(struct sl_draft *d, struct sl_err *err) SL_MUST_CHECK;
int sl_layer_environment(struct sl_draft *d, char *const *environ_list,
                         struct sl_err *err) SL_MUST_CHECK;
int sl_layer_flags(struct sl_draft *d, const struct sl_config_override *flags, size_t count,
                   struct sl_err *err) SL_MUST_CHECK;

#define SL_GPU_UUID_TEXT     96 /* with its NUL */
#define SL_DOMAIN            "nvidia.com/"
#define SL_RESOURCE_NAME_MAX 63 /* with the domain, as NVIDIA's plugin counts */
#define SL_SHARED_SUFFIX     ".shared"
#define SL_MAX_REPLICAS      1024 /* kubelet holds each replica as a device, in one message of 16 MiB */
#define SL_MAX_VGPUS         64 /* of one type on a card: it has no more virtual functions */
#define SL_MAX_MPS_CLIENTS   60 /* of one card, since CUDA 13.1 */

/* --- yaml.c --- */
int sl_yaml_read(struct sl_draft *d, const char *text, size_t size,
                 struct sl_err *err) SL_MUST_CHECK;

/* --- check.c: errors that no single value shows --- */
int sl_draft_check(struct sl_draft *d, struct sl_err *err) SL_MUST_CHECK;

/* --- config.c --- */
/* A draft that borrows everything from a finished configuration, to print or compare it by table. */
void sl_draft_view(const struct sl_config *config, struct sl_draft *ret);

#endif
