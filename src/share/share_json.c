/* SPDX-License-Identifier: Apache-2.0 */
#include "share/share_json.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/errors.h"
#include "share/errors.h"

#define MIB     (1u << 20)
#define PERCENT 10u /* permille */

/* The annotations of a share: the request, and the promise. */
#define REQUEST   SL_SHARE_REQUEST
#define GPU       SL_SHARE_GPU
#define CONTAINER SL_SHARE_CONTAINER
#define CONFIG    SL_SHARE_CONFIG
#define KEPT      SL_SHARE_KEPT

/* Numbers are 32 or 64 bits wide and written in units of `unit`; enums are written as one of the words, and in the
 * checkpoint as their number. A value that equals SL_SHARE_INIT is left out, unless the form is one of `always`. */
static const struct field {
    const char *key;
    unsigned forms, always;
    uint8_t size, offset;
    uint32_t unit;
    int64_t max;
    const char *const *words;
} fields[] = {
#define F(member) sizeof(((struct sl_share *)0)->member), offsetof(struct sl_share, member)
    {"memoryMiB", REQUEST | GPU, GPU, F(memory_bytes), MIB, SL_SHARE_MIB_MAX, NULL},
    {"memoryPercent", REQUEST, 0, F(memory_percent), 1, 100, NULL},
    {"memoryBytes", KEPT, KEPT, F(memory_bytes), 1, INT64_MAX, NULL},
    {"cores", REQUEST | GPU, REQUEST | GPU, F(cores_permille), PERCENT, 100, NULL},
    {"coresPermille", KEPT, KEPT, F(cores_permille), 1, UINT32_MAX, NULL},
    {"coresLimit", REQUEST | CONTAINER, 0, F(limit_permille), PERCENT, 100, NULL},
    {"limitPermille", KEPT, KEPT, F(limit_permille), 1, UINT32_MAX, NULL},
    {"priority", REQUEST | CONTAINER | CONFIG | KEPT, KEPT, F(priority), 1, SL_PRIORITY_HIGH,
     sl_priority_words},
    {"strategy", CONFIG | KEPT, KEPT, F(strategy), 1, SL_SHARE_TIME_SLICING, sl_strategy_words},
    {"compute", CONFIG | KEPT, 0, F(compute), 1, SL_COMPUTE_TURNS, sl_compute_words},
#undef F
};

/* The UUID is the only string, and the only field that must be present. */
static const char *uuid_key(enum sl_share_form form)
{
    return form == GPU ? "uuid" : form == KEPT ? "gpu" : NULL;
}

/* The low bytes of a number come first. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "fields are copied by their low bytes");

static uint64_t get(const struct sl_share *share, const struct field *f)
{
    uint64_t value = 0;
    memcpy(&value, (const char *)share + f->offset, f->size);
    return value;
}

static void set(struct sl_share *share, const struct field *f, uint64_t value)
{
    memcpy((char *)share + f->offset, &value, f->size);
}

json_t *sl_share_write(const struct sl_share *share, enum sl_share_form form, json_t *object)
{
    static const struct sl_share unsaid = SL_SHARE_INIT;
    const char *key = uuid_key(form);
    if (key)
        (void)json_object_set_new(object, key, json_string(share->gpu));
    for (size_t i = 0; i < SL_ARRAY_LEN(fields); i++) {
        const struct field *f = &fields[i];
        uint64_t value = get(share, f);
        if (!(f->forms & form) || (!(f->always & form) && value == get(&unsaid, f)))
            continue;
        (void)json_object_set_new(object, f->key,
                                  f->words && form != KEPT
                                      ? json_string(f->words[value])
                                      : json_integer((json_int_t)(value / f->unit)));
    }
    return object;
}

static int read_gpu(const json_t *object, enum sl_share_form form, struct sl_share *share,
                    struct sl_err *err)
{
    const char *key = uuid_key(form), *text = json_string_value(json_object_get(object, key));
    /* The lists of HAMi's annotations have commas, colons and semicolons between the names. */
    if (!text || strlen(text) >= sizeof(share->gpu) ||
        (form == GPU && (!text[0] || strpbrk(text, ",;:\n"))))
        return sl_err_set(err, -EINVAL, SL_E_PROMISE_FIELD, key);
    (void)snprintf(share->gpu, sizeof(share->gpu), "%s", text);
    return 0;
}

static int read_word(const json_t *value, const struct field *f, struct sl_share *share,
                     struct sl_err *err)
{
    const char *text = json_string_value(value);
    int n = text ? sl_word_find(f->words, text) : -1;
    if (!text)
        return 0; /* not our object: ignore it */
    if (n < 0)
        return sl_err_set(err, -EINVAL, SL_E_PROMISE_WORD, f->key, text, f->words[0], f->words[1],
                          f->words[2]);
    set(share, f, (uint64_t)n);
    return 0;
}

int sl_share_read(const json_t *object, enum sl_share_form form, struct sl_share *share,
                  struct sl_err *err)
{
    int rc = uuid_key(form) ? read_gpu(object, form, share, err) : 0;
    for (size_t i = 0; rc == 0 && i < SL_ARRAY_LEN(fields); i++) {
        const struct field *f = &fields[i];
        const json_t *value = json_object_get(object, f->key);
        json_int_t n = json_integer_value(value);
        if (!(f->forms & form) || !value)
            continue;
        if (f->words && form != KEPT)
            rc = read_word(value, f, share, err);
        else if (!json_is_integer(value) || n < 0 || n > f->max)
            rc = sl_err_set(err, -EINVAL, SL_E_JSON_NUMBER, f->key, (long long)f->max);
        else
            set(share, f, (uint64_t)n * f->unit);
    }
    return rc;
}

/* --- ShareConfig ---
 *
 *   apiVersion: gpu.sluice.io/v1alpha1
 *   kind: ShareConfig
 *   priority: high            # low, normal, high
 *   strategy: libsluice       # libsluice, mps, timeSlicing
 *   compute: turns            # auto, slices, turns; only a DeviceClass may say it
 *   cores: {limit: 100}       # percent; use what is idle beyond the share, up to this
 */

int sl_share_config_word(const json_t *value, const char *key, const char *const *words,
                         unsigned *ret, struct sl_err *err)
{
    const char *text = json_string_value(value);
    int n = text ? sl_word_find(words, text) : -1;
    if (n < 0)
        return sl_err_set(err, -EINVAL, SL_E_SHARE_WORD, key, text ? text : "(not a string)",
                          words[0], words[1], words[2]);
    *ret = (unsigned)n;
    return 0;
}

static int read_cores(const json_t *cores, struct sl_share *share, struct sl_err *err)
{
    const char *key;
    json_t *value;
    if (!json_is_object(cores))
        return sl_err_set(err, -EINVAL, SL_E_SHARE_CORES);
    /* jansson wants it writable only to iterate. */
    json_object_foreach((json_t *)(uintptr_t)cores, key, value)
    {
        if (strcmp(key, "limit") != 0)
            return sl_err_set(err, -EINVAL, SL_E_SHARE_CORES_KEY, key);
        json_int_t n = json_is_integer(value) ? json_integer_value(value) : -1;
        if (n < 1 || n > 100)
            return sl_err_set(err, -EINVAL, SL_E_SHARE_CORES_LIMIT);
        share->limit_permille = (uint32_t)n * PERCENT;
    }
    return 0;
}

int sl_share_config_key(const char *key, const json_t *value, struct sl_share *share,
                        struct sl_err *err)
{
    unsigned n = 0;
    if (strcmp(key, "cores") == 0)
        return read_cores(value, share, err);
    for (size_t i = 0; i < SL_ARRAY_LEN(fields); i++) {
        if (!(fields[i].forms & CONFIG) || strcmp(fields[i].key, key) != 0)
            continue;
        int rc = sl_share_config_word(value, key, fields[i].words, &n, err);
        if (rc == 0)
            set(share, &fields[i], n);
        return rc;
    }
    char known[200] = "";
    for (size_t i = 0; i < SL_ARRAY_LEN(fields); i++)
        if (fields[i].forms & CONFIG)
            (void)snprintf(known + strlen(known), sizeof(known) - strlen(known), "%s, ",
                           fields[i].key);
    return sl_err_set(err, -EINVAL, SL_E_SHARE_KEY, key, known);
}

json_t *sl_share_config_write(const struct sl_share *share)
{
    json_t *said = sl_share_write(share, CONFIG, json_object());
    if (share->limit_permille)
        (void)json_object_set_new(
            said, "cores",
            json_pack("{s:I}", "limit", (json_int_t)(share->limit_permille / PERCENT)));
    if (json_object_size(said) == 0) {
        json_decref(said);
        return NULL;
    }
    (void)json_object_set_new(said, "apiVersion", json_string(SL_SHARE_API_VERSION));
    (void)json_object_set_new(said, "kind", json_string(SL_SHARE_KIND));
    return said;
}
