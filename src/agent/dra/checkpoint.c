/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/dra/checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/dra/errors.h"
#include "base/cleanup.h"
#include "base/fault.h"
#include "base/fsutil.h"
#include "base/hash.h"
#include "base/json_dump.h"
#include "base/list.h"
#include "base/log.h"
#include "base/xalloc.h"

#define VERSION  1
#define OLD_FILE SL_CHECKPOINT_FILE ".old"
#define NEW_FILE SL_CHECKPOINT_FILE ".new"
#define BAD_FILE SL_CHECKPOINT_FILE ".bad"
#define FILE_MAX (64U << 20)

struct sl_prepared *sl_checkpoint_find(const struct sl_checkpoint *c, const char *uid)
{
    for (struct sl_prepared *p = c->claims; p; p = p->next)
        if (strcmp(p->uid, uid) == 0)
            return p;
    return NULL;
}

struct sl_prepared *sl_checkpoint_add(struct sl_checkpoint *c, const char *uid, size_t devices)
{
    struct sl_prepared *p = sl_xcalloc(1, sizeof(*p));
    p->device = sl_xcalloc(devices, sizeof(*p->device));
    (void)snprintf(p->uid, sizeof(p->uid), "%s", uid);
    p->device_count = devices;
    p->next = c->claims;
    c->claims = p;
    return p;
}

void sl_checkpoint_drop(struct sl_checkpoint *c, struct sl_prepared *entry)
{
    sl_list_drop(&c->claims, entry);
    free(entry->device);
    free(entry);
}

void sl_checkpoint_clear(struct sl_checkpoint *c)
{
    while (c->claims)
        sl_checkpoint_drop(c, c->claims);
}

struct sl_share sl_prepared_share(const struct sl_prepared_device *d)
{
    return sl_resize_share(&d->share, &d->resized);
}

/* --- fields: one table for writing and reading --- */

/* LATER_…: the files of earlier versions do not have it; it is empty or 0 then. */
enum field_type { TEXT, LATER_TEXT, U32, LATER_U32, U64, FLAG, WORD };
struct field {
    const char *name;
    enum field_type type;
    size_t offset, size;
};
#define F(s, type, name, member) {name, type, offsetof(s, member), sizeof(((s *)0)->member)}
#define D(type, name, member)    F(struct sl_prepared_device, type, name, member)
static const struct field device_fields[] = {
    D(TEXT, "request", request),
    D(LATER_TEXT, "subrequest", subrequest),
    D(TEXT, "device", device),
    D(TEXT, "shareID", share_id),
    D(FLAG, "admin", admin),
    D(TEXT, "tenant", tenant),
    D(U64, "resizedMemoryBytes", resized.memory_bytes),
    D(U32, "resizedCoresPermille", resized.cores_permille),
    D(U32, "resizedLimitPermille", resized.limit_permille),
    D(LATER_U32, "timeslice", timeslice),
    D(WORD, "mig", mig),
    D(U32, "migProfileID", mig_profile_id),
    D(U32, "migStart", mig_start),
    D(U32, "migSize", mig_size),
    D(TEXT, "migProfile", mig_profile),
    D(TEXT, "migUUID", mig_uuid),
    D(U32, "migGPUInstance", mig_gpu_instance),
    D(U32, "migComputeInstance", mig_compute_instance),
    D(U64, "readySince", ready_since.yes_s),
    D(U64, "notReadySince", ready_since.no_s),
    D(U64, "resizedSince", resized_since.yes_s),
    D(U64, "notResizedSince", resized_since.no_s),
};
static const struct field claim_fields[] = {
    F(struct sl_prepared, TEXT, "uid", uid),
    F(struct sl_prepared, TEXT, "namespace", name_space),
    F(struct sl_prepared, TEXT, "name", name),
    F(struct sl_prepared, TEXT, "pod", pod),
    F(struct sl_prepared, TEXT, "podUID", pod_uid),
    F(struct sl_prepared, LATER_TEXT, "podClaim", pod_claim),
    F(struct sl_prepared, WORD, "state", state),
    F(struct sl_prepared, LATER_U32, "resizeUnsure", unsure),
};

static json_t *write_field(const struct field *f, const void *base)
{
    const char *at = (const char *)base + f->offset;
    uint64_t u64 = 0;
    uint32_t u32 = 0;
    switch (f->type) {
    case TEXT:
    case LATER_TEXT:
        return json_string(at);
    case FLAG:
        return json_boolean(*(const bool *)(const void *)at);
    case U64:
        memcpy(&u64, at, sizeof(u64));
        return json_integer((json_int_t)u64);
    case U32:
    case LATER_U32:
    case WORD: /* enums are ints here */
        memcpy(&u32, at, sizeof(u32));
        return json_integer((json_int_t)u32);
    }
    return NULL;
}

static bool read_field(const struct field *f, const json_t *object, void *base)
{
    char *at = (char *)base + f->offset;
    const json_t *v = json_object_get(object, f->name);
    json_int_t n = json_integer_value(v);
    uint64_t u64 = (uint64_t)n;
    uint32_t u32 = (uint32_t)n;
    if (!v && (f->type == LATER_TEXT || f->type == LATER_U32))
        return true;
    switch (f->type) {
    case LATER_TEXT:
    case TEXT:
        if (!json_is_string(v) || json_string_length(v) >= f->size)
            return false;
        memcpy(at, json_string_value(v), json_string_length(v) + 1);
        return true;
    case FLAG:
        *(bool *)(void *)at = json_is_true(v);
        return json_is_boolean(v);
    case U64:
        memcpy(at, &u64, sizeof(u64));
        return json_is_integer(v);
    case WORD:
        memcpy(at, &u32, sizeof(u32));
        return json_is_integer(v) && n >= 0 && n < 8;
    case LATER_U32:
    case U32:
        memcpy(at, &u32, sizeof(u32));
        return json_is_integer(v) && n >= 0 && n <= UINT32_MAX;
    }
    return false;
}

/* Not 0: a text is not UTF-8. */
static int write_fields(const struct field *f, size_t count, const void *base, json_t *object)
{
    int bad = 0;
    for (size_t i = 0; i < count; i++)
        bad |= json_object_set_new(object, f[i].name, write_field(&f[i], base));
    return bad;
}

static bool read_fields(const struct field *f, size_t count, const json_t *object, void *base)
{
    for (size_t i = 0; i < count; i++)
        if (!read_field(&f[i], object, base))
            return false;
    return true;
}

/* --- the file --- */

static char *canonical(const json_t *data)
{
    return sl_json_dump(data, JSON_COMPACT | JSON_SORT_KEYS | JSON_ENSURE_ASCII);
}

static json_t *write_data(const struct sl_checkpoint *c)
{
    json_t *claims = json_array();
    int bad = 0;
    for (const struct sl_prepared *p = c->claims; p; p = p->next) {
        json_t *o = json_object(), *devices = json_array();
        bad |= write_fields(claim_fields, SL_ARRAY_LEN(claim_fields), p, o);
        for (size_t i = 0; i < p->device_count; i++) {
            json_t *d = json_object();
            bad |= write_fields(device_fields, SL_ARRAY_LEN(device_fields), &p->device[i], d);
            sl_share_write(&p->device[i].share, SL_SHARE_KEPT, d);
            (void)json_array_append_new(devices, d);
        }
        (void)json_object_set_new(o, "devices", devices);
        (void)json_array_append_new(claims, o);
    }
    json_t *data = json_pack("{s:o}", "claims", claims);
    if (!bad)
        return data;
    json_decref(data);
    return NULL;
}

static int read_data(const json_t *data, struct sl_checkpoint *c)
{
    const json_t *claims = json_object_get(data, "claims");
    /* Backwards: entries are added at the front. */
    for (size_t i = json_array_size(claims); i-- > 0;) {
        const json_t *o = json_array_get(claims, i);
        const json_t *devices = json_object_get(o, "devices");
        struct sl_prepared *p = sl_checkpoint_add(c, "", json_array_size(devices));
        bool good = read_fields(claim_fields, SL_ARRAY_LEN(claim_fields), o, p);
        for (size_t k = 0; good && k < p->device_count; k++) {
            const json_t *d = json_array_get(devices, k);
            p->device[k].share = (struct sl_share)SL_SHARE_INIT;
            good = read_fields(device_fields, SL_ARRAY_LEN(device_fields), d, &p->device[k]) &&
                   sl_share_read(d, SL_SHARE_KEPT, &p->device[k].share, NULL) == 0;
        }
        if (!good || p->state > SL_UNPREPARING)
            return -EBADMSG;
    }
    return json_is_array(claims) ? 0 : -EBADMSG;
}

static int load_file(int dir, const char *name, struct sl_checkpoint *ret, struct sl_err *err)
{
    SL_CLEANUP(free) char *text = NULL;
    size_t size = 0;
    int rc = sl_fs_read(dir, name, FILE_MAX, &text, &size, err);
    if (rc < 0)
        return rc;
    json_t *file = json_loadb(text, size, JSON_REJECT_DUPLICATES, NULL);
    const json_t *data = json_object_get(file, "data");
    json_int_t version = json_integer_value(json_object_get(file, "version"));
    const char *sum = json_string_value(json_object_get(file, "checksum"));
    SL_CLEANUP(free) char *body = data ? canonical(data) : NULL;
    char want[24] = "";
    if (body)
        (void)snprintf(want, sizeof(want), "%016llx", (unsigned long long)sl_hash_text(body));
    struct sl_checkpoint c = {0};
    if (!body || !sum || strcmp(sum, want) != 0)
        rc = sl_err_set(err, -EBADMSG, SL_E_CHECKPOINT_DAMAGED, name);
    else if (version != VERSION)
        rc = sl_err_set(err, -EPROTONOSUPPORT, SL_E_CHECKPOINT_VERSION, name, (long long)version,
                        VERSION);
    else if ((rc = read_data(data, &c)) < 0)
        rc = sl_err_set(err, rc, SL_E_CHECKPOINT_ENTRIES, name);
    json_decref(file);
    if (rc < 0)
        sl_checkpoint_clear(&c);
    else
        *ret = c;
    return rc;
}

int sl_checkpoint_load(const char *dir, struct sl_checkpoint *ret, struct sl_err *err)
{
    struct sl_err why = SL_ERR_INIT;
    SL_CLEANUP(close) int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return sl_err_errno(err, errno, "cannot open %s", dir);
    int rc = load_file(fd, SL_CHECKPOINT_FILE, ret, &why);
    if (rc == 0)
        return 0;
    /* Do not overwrite the state of a newer version. */
    if (rc == -EPROTONOSUPPORT)
        return sl_err_set(err, rc, "%s/%s", dir, why.msg);
    bool first = rc == -ENOENT;
    if (!first) {
        sl_error("cannot use the checkpoint in %s: %s; it is renamed to " BAD_FILE, dir, why.msg);
        (void)renameat(fd, SL_CHECKPOINT_FILE, fd, BAD_FILE);
    }
    rc = load_file(fd, OLD_FILE, ret, &why);
    if (rc == -ENOENT) {
        *ret = (struct sl_checkpoint){.doubtful = !first};
        return 0;
    }
    if (rc < 0)
        return sl_err_set(err, rc, "%s/%s", dir, why.msg);
    ret->doubtful = true;
    return 0;
}

static int write_new(int dir, const char *text, struct sl_err *err)
{
    int rc = sl_fs_replace(dir, NEW_FILE, text, strlen(text), 0600, err);
    if (rc < 0)
        return rc;
    /* The machine may lose power: a renamed file without its contents would be no checkpoint. */
    SL_CLEANUP(close) int fd = openat(dir, NEW_FILE, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fdatasync(fd) != 0)
        return sl_err_errno(err, errno, "cannot write " NEW_FILE);
    return 0;
}

int sl_checkpoint_save(const char *dir, const struct sl_checkpoint *c, struct sl_err *err)
{
    json_t *data = write_data(c);
    SL_CLEANUP(free) char *body = data ? canonical(data) : NULL;
    json_decref(data);
    if (!body)
        return sl_err_set(err, -EILSEQ, SL_E_CHECKPOINT_UTF8);
    SL_CLEANUP(free)
    char *text = sl_xasprintf("{\"version\":%d,\"checksum\":\"%016llx\",\"data\":%s}\n", VERSION,
                              (unsigned long long)sl_hash_text(body), body);
    SL_CLEANUP(close) int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return sl_err_errno(err, errno, "cannot open %s", dir);
    SL_FAULT("checkpoint.before");
    int rc = write_new(fd, text, err);
    if (rc < 0)
        return sl_err_wrap(err, "%s", dir);
    SL_FAULT("checkpoint.written");
    (void)unlinkat(fd, OLD_FILE, 0);
    /* The new file does not need its predecessor; a first write has none. */
    if (linkat(fd, SL_CHECKPOINT_FILE, fd, OLD_FILE, 0) != 0 && errno != ENOENT)
        sl_warn("cannot keep a second copy of the checkpoint %s: %s", dir, strerror(errno));
    SL_FAULT("checkpoint.linked");
    if (renameat(fd, NEW_FILE, fd, SL_CHECKPOINT_FILE) != 0)
        return sl_err_errno(err, errno, "cannot replace %s/" SL_CHECKPOINT_FILE, dir);
    SL_FAULT("checkpoint.replaced");
    return 0;
}
