/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GpuConfig and MigDeviceConfig, the opaque parameters of NVIDIA's DRA driver, for claims of its classes:
 *
 *   apiVersion: resource.nvidia.com/v1beta1
 *   kind: GpuConfig
 *   sharing:
 *     strategy: TimeSlicing                     # or MPS
 *     timeSlicingConfig: {interval: Long}       # Default, Short, Medium, Long
 *     mpsConfig: {defaultActiveThreadPercentage: 50, defaultPinnedDeviceMemoryLimit: 10Gi,
 *                 defaultPerDevicePinnedMemoryLimit: {"0": 8Gi}}
 *
 * They say how the containers of one claim share its GPU. What is not served here is refused: nothing is ignored.
 */
#include "agent/dra/claim.h"

#include <errno.h>
#include <string.h>

#include "agent/dra/errors.h"
#include "base/cleanup.h"
#include "base/json_read.h"
#include "base/quantity.h"

struct reading {
    const char *kind;  /* "GpuConfig" */
    size_t place;      /* of the device, for limits by device */
    unsigned strategy; /* NONE, or an index of strategies */
    bool has_slicing, has_mps;
    uint32_t interval, percent;
    uint64_t memory, memory_here; /* for all devices, and for this one */
};
enum { TIME_SLICING, MPS, NONE };
static const char *const strategies[] = {[TIME_SLICING] = "TimeSlicing", [MPS] = "MPS", NULL};
static const char *const intervals[] = {"Default", "Short", "Medium", "Long", NULL};

typedef int read_fn(const json_t *value, struct reading *in, struct sl_err *err);
struct key {
    const char *name;
    read_fn *read;
};

/* Reads an object with these keys, and no others. */
static int read_keys(const json_t *object, const char *name, const struct key *keys, size_t count,
                     struct reading *in, struct sl_err *err)
{
    const char *key;
    json_t *value;
    if (!json_is_object(object))
        return sl_err_set(err, -EINVAL, SL_E_NVIDIA_MAPPING, in->kind, name);
    json_object_foreach((json_t *)(uintptr_t)object, key, value)
    {
        size_t i = 0;
        while (i < count && strcmp(keys[i].name, key) != 0)
            i++;
        if (i == count)
            return sl_err_set(err, -EINVAL, SL_E_NVIDIA_KEY, in->kind, key, name);
        int rc = json_is_null(value) || !keys[i].read ? 0 : keys[i].read(value, in, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* The word's index; the count of words where it is none of them. */
static unsigned word_of(const json_t *value, const char *const *words)
{
    unsigned i = 0;
    const char *text = json_string_value(value);
    while (words[i] && (!text || strcmp(words[i], text) != 0))
        i++;
    return i;
}

static int read_interval(const json_t *value, struct reading *in, struct sl_err *err)
{
    in->interval = word_of(value, intervals);
    return intervals[in->interval] ? 0 : sl_err_set(err, -EINVAL, SL_E_NVIDIA_INTERVAL, in->kind);
}

static int read_percent(const json_t *value, struct reading *in, struct sl_err *err)
{
    json_int_t n = json_is_integer(value) ? json_integer_value(value) : 0;
    if (n < 1 || n > 100)
        return sl_err_set(err, -EINVAL, SL_E_NVIDIA_PERCENT, in->kind);
    in->percent = (uint32_t)n;
    return 0;
}

/* The daemon counts in MiB. */
static int read_bytes(const json_t *value, const char *name, const struct reading *in,
                      uint64_t *ret, struct sl_err *err)
{
    uint64_t bytes = 0;
    if (sl_jget_quantity(value, 0, &bytes) < 0 || bytes >> 20 == 0)
        return sl_err_set(err, -EINVAL, SL_E_NVIDIA_MEMORY, in->kind, name);
    *ret = bytes;
    return 0;
}

static int read_memory(const json_t *value, struct reading *in, struct sl_err *err)
{
    return read_bytes(value, "defaultPinnedDeviceMemoryLimit", in, &in->memory, err);
}

static int read_memories(const json_t *value, struct reading *in, struct sl_err *err)
{
    const char *name = "defaultPerDevicePinnedMemoryLimit", *key;
    json_t *limit;
    if (!json_is_object(value))
        return sl_err_set(err, -EINVAL, SL_E_NVIDIA_MAPPING, in->kind, name);
    json_object_foreach((json_t *)(uintptr_t)value, key, limit)
    {
        uint64_t place = 0, bytes = 0;
        const char *end = sl_number_read(key, SL_CLAIM_RESULTS, &place);
        if (!end || *end)
            return sl_err_set(err, -EINVAL, SL_E_NVIDIA_PLACE, in->kind, name, key);
        int rc = read_bytes(limit, name, in, &bytes, err);
        if (rc < 0)
            return rc;
        if (place == in->place)
            in->memory_here = bytes;
    }
    return 0;
}

static int read_slicing(const json_t *value, struct reading *in, struct sl_err *err)
{
    static const struct key keys[] = {{"interval", read_interval}};
    in->has_slicing = true;
    return read_keys(value, "timeSlicingConfig", keys, SL_ARRAY_LEN(keys), in, err);
}

static int read_mps(const json_t *value, struct reading *in, struct sl_err *err)
{
    static const struct key keys[] = {{"defaultActiveThreadPercentage", read_percent},
                                      {"defaultPinnedDeviceMemoryLimit", read_memory},
                                      {"defaultPerDevicePinnedMemoryLimit", read_memories}};
    in->has_mps = true;
    return read_keys(value, "mpsConfig", keys, SL_ARRAY_LEN(keys), in, err);
}

static int read_strategy(const json_t *value, struct reading *in, struct sl_err *err)
{
    in->strategy = word_of(value, strategies);
    return in->strategy < NONE ? 0 : sl_err_set(err, -EINVAL, SL_E_NVIDIA_STRATEGY, in->kind);
}

static int read_sharing(const json_t *value, struct reading *in, struct sl_err *err)
{
    static const struct key keys[] = {
        {"strategy", read_strategy}, {"timeSlicingConfig", read_slicing}, {"mpsConfig", read_mps}};
    int rc = read_keys(value, "sharing", keys, SL_ARRAY_LEN(keys), in, err);
    if (rc < 0)
        return rc;
    if (in->strategy == NONE)
        return sl_err_set(err, -EINVAL, SL_E_NVIDIA_STRATEGY, in->kind);
    bool stray = in->strategy == MPS ? in->has_slicing : in->has_mps;
    if (stray)
        return sl_err_set(err, -EINVAL, SL_E_NVIDIA_BESIDE, in->kind,
                          in->strategy == MPS ? "timeSlicingConfig" : "mpsConfig",
                          strategies[in->strategy]);
    return 0;
}

/* What was read, for a device of this kind. */
static int take(const struct reading *in, struct sl_claim_result *r, struct sl_err *err)
{
    bool mps = in->strategy == MPS;
    if (r->name.kind == SL_DEVICE_MIG && mps)
        return sl_err_set(err, -EINVAL, SL_E_NVIDIA_MPS_MIG, r->device);
    if (r->name.kind == SL_DEVICE_SHARE && (mps || in->interval))
        return sl_err_set(err, -EINVAL, SL_E_NVIDIA_SHARED,
                          mps ? "MPS" : "An interval of time-slicing", r->device);
    if (r->name.kind != SL_DEVICE_WHOLE)
        return 0;
    r->share.strategy = mps ? SL_SHARE_MPS : SL_SHARE_TIME_SLICING;
    r->share.limit_permille = in->percent * 10;
    r->share.memory_bytes = in->memory_here ? in->memory_here : in->memory;
    r->timeslice = in->interval;
    return 0;
}

int sl_nvidia_config_apply(const json_t *parameters, bool named, size_t place,
                           struct sl_claim_result *r, struct sl_err *err)
{
    static const struct key keys[] = {
        {"apiVersion", NULL}, {"kind", NULL}, {"sharing", read_sharing}};
    const char *version = sl_jget_text(parameters, "apiVersion");
    const char *kind = sl_jget_text(parameters, "kind");
    bool gpu = strcmp(kind, "GpuConfig") == 0, mig = strcmp(kind, "MigDeviceConfig") == 0;
    if (strcmp(version, SL_NVIDIA_API_VERSION) != 0 || (!gpu && !mig))
        return sl_err_set(err, -EINVAL, SL_E_NVIDIA_KIND,
                          version[0] ? version : "without apiVersion",
                          kind[0] ? kind : "without kind");
    if (mig != (r->name.kind == SL_DEVICE_MIG)) {
        if (!named)
            return 0;
        return sl_err_set(err, -EINVAL, SL_E_NVIDIA_OTHER_KIND, kind, r->device);
    }
    struct reading in = {.kind = kind, .place = place, .strategy = NONE};
    int rc = read_keys(parameters, "the top", keys, SL_ARRAY_LEN(keys), &in, err);
    if (rc == 0 && mig && in.has_slicing) /* instances have no such setting */
        rc = sl_err_set(err, -EINVAL, SL_E_NVIDIA_KEY, kind, "timeSlicingConfig", "sharing");
    return rc < 0 ? rc : take(&in, r, err);
}
