/* SPDX-License-Identifier: Apache-2.0 */
/* Specs: the one-line form, the file form, and what follows from them (UUIDs, PCI, NVLink). */
#include "sim/profiles.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"
#include "base/fsutil.h"
#include "base/hash.h"
#include "base/units.h"

#define SPEC_FILE_MAX 65536

/* What a file may say before it is turned into devices. */
struct draft {
    struct sl_sim_spec spec;
    char seed[64];
    bool uuid_given[SL_SIM_MAX_DEVICES], pci_given[SL_SIM_MAX_DEVICES];
    bool numa_given[SL_SIM_MAX_DEVICES];
};

static uint64_t mix64(uint64_t x)
{
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9ULL;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebULL;
    return x ^ (x >> 31);
}

void sl_sim_hash128(const char *text, uint64_t a, uint64_t b, uint8_t out[16])
{
    uint64_t lo = mix64(sl_hash_text(text) ^ mix64(a + 1));
    uint64_t hi = mix64(lo ^ mix64(b + 0x9e3779b97f4a7c15ULL));
    lo = mix64(lo + hi);
    for (size_t i = 0; i < 8; i++) {
        out[i] = (uint8_t)(hi >> (8 * i));
        out[8 + i] = (uint8_t)(lo >> (8 * i));
    }
    out[6] = (uint8_t)((out[6] & 0x0f) | 0x50); /* well-formed: a name-based UUID */
    out[8] = (uint8_t)((out[8] & 0x3f) | 0x80);
}

void sl_sim_uuid_format(const char *prefix, const uint8_t u[16], char *buf, size_t size)
{
    (void)snprintf(buf, size,
                   "%s%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", prefix,
                   u[0], u[1], u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12],
                   u[13], u[14], u[15]);
}

static int unknown_profile(struct sl_err *err, const char *where, const char *word)
{
    char known[160] = "";
    for (size_t i = 0; i < sl_sim_profile_count(); i++) {
        size_t used = strlen(known);
        (void)snprintf(known + used, sizeof(known) - used, "%s%s", i ? ", " : "",
                       sl_sim_profile_at(i)->key);
    }
    return sl_err_set(err, -EINVAL,
                      "%s: there is no simulated card \"%.40s\"; the known ones are %s, each with "
                      "an optional count, for example h200x4",
                      where, word, known);
}

static int add_device(struct draft *d, size_t profile, const char *where, struct sl_err *err)
{
    const struct sl_sim_profile *p = sl_sim_profile_at(profile);
    if (d->spec.count == SL_SIM_MAX_DEVICES)
        return sl_err_set(err, -E2BIG, "%s: more than %d simulated cards; ask for fewer", where,
                          SL_SIM_MAX_DEVICES);
    struct sl_sim_device *dev = &d->spec.devices[d->spec.count++];
    dev->profile = (uint32_t)profile;
    dev->sm_count = p->sm_count;
    dev->memory_total_bytes = p->memory_total_bytes;
    dev->memory_bandwidth_bytes_per_s = p->memory_bandwidth_bytes_per_s;
    dev->context_overhead_bytes = p->context_overhead_bytes;
    dev->nvlinks = p->nvlinks;
    (void)snprintf(dev->name, sizeof(dev->name), "%s", p->name);
    return 0;
}

/* "h200", "h200x4". A key may itself end in x and digits one day, so the whole word is tried first. */
static int add_devices(struct draft *d, const char *word, const char *where, struct sl_err *err)
{
    size_t profile = sl_sim_profile_count();
    unsigned long count = 1;
    size_t len = strlen(word);
    for (size_t i = 0; i < sl_sim_profile_count(); i++) {
        const char *key = sl_sim_profile_at(i)->key;
        size_t n = strlen(key);
        if (strncasecmp(word, key, n) != 0)
            continue;
        if (len == n) {
            profile = i;
            count = 1;
            break;
        }
        if ((word[n] == 'x' || word[n] == 'X') && isdigit((unsigned char)word[n + 1])) {
            char *end;
            count = strtoul(word + n + 1, &end, 10);
            if (*end != '\0')
                continue;
            profile = i;
        }
    }
    if (profile == sl_sim_profile_count())
        return unknown_profile(err, where, word);
    if (count == 0 || count > SL_SIM_MAX_DEVICES)
        return sl_err_set(err, -EINVAL, "%s: \"%.40s\": the count is from 1 to %d", where, word,
                          SL_SIM_MAX_DEVICES);
    for (; count > 0; count--) {
        int r = add_device(d, profile, where, err);
        if (r < 0)
            return r;
    }
    return 0;
}

/* Cards of one kind with NVLink form one fabric. */
static void link_fabrics(struct sl_sim_spec *spec)
{
    uint32_t next = 1;
    for (size_t i = 0; i < spec->count; i++) {
        struct sl_sim_device *a = &spec->devices[i];
        if (a->nvlinks == 0 || a->nvlink_fabric != 0)
            continue;
        for (size_t j = i + 1; j < spec->count; j++) {
            struct sl_sim_device *b = &spec->devices[j];
            if (b->profile == a->profile && b->nvlinks != 0) {
                a->nvlink_fabric = next;
                b->nvlink_fabric = next;
            }
        }
        next++;
    }
}

static int finish(struct draft *d, const char *where, struct sl_sim_spec *ret, struct sl_err *err)
{
    struct sl_sim_spec *s = &d->spec;
    if (s->count == 0)
        return sl_err_set(
            err, -EINVAL,
            "%s: no card is named; write for example h200x4, or \"device = h200\" in a "
            "file",
            where);
    for (size_t i = 0; i < s->count; i++) {
        struct sl_sim_device *dev = &s->devices[i];
        const char *key = sl_sim_profile_at(dev->profile)->key;
        char text[128];
        (void)snprintf(text, sizeof(text), "%s/%s", key, d->seed);
        if (!d->uuid_given[i])
            sl_sim_hash128(text, i, 0, dev->uuid);
        sl_sim_uuid_format("GPU-", dev->uuid, dev->uuid_text, sizeof(dev->uuid_text));
        uint64_t serial;
        memcpy(&serial, dev->uuid, sizeof(serial));
        (void)snprintf(dev->serial, sizeof(dev->serial), "1%012llu",
                       (unsigned long long)(serial % 1000000000000ULL));
        if (!d->pci_given[i])
            dev->pci_bus = (uint32_t)(0x0f + 0x0d * i);
        if (!d->numa_given[i])
            dev->numa_node = s->count > 1 && i >= s->count / 2 ? 1 : 0;
        for (size_t j = 0; j < i; j++) {
            const struct sl_sim_device *o = &s->devices[j];
            if (memcmp(o->uuid, dev->uuid, sizeof(o->uuid)) == 0)
                return sl_err_set(err, -EINVAL, "%s: cards %zu and %zu have the same uuid", where,
                                  j, i);
            if (o->pci_domain == dev->pci_domain && o->pci_bus == dev->pci_bus &&
                o->pci_device == dev->pci_device)
                return sl_err_set(err, -EINVAL, "%s: cards %zu and %zu have the same pci address",
                                  where, j, i);
        }
    }
    link_fabrics(s);
    *ret = *s;
    return 0;
}

static void draft_init(struct draft *d)
{
    *d = (struct draft){.spec = {.driver_version = "580.159.04", .cuda_version = 13000}};
}

static int set_seed(struct draft *d, const char *seed, const char *where, struct sl_err *err)
{
    if (*seed == '\0' || strlen(seed) >= sizeof(d->seed))
        return sl_err_set(err, -EINVAL, "%s: the seed is a word of 1 to %zu characters", where,
                          sizeof(d->seed) - 1);
    (void)snprintf(d->seed, sizeof(d->seed), "%s", seed);
    return 0;
}

int sl_sim_spec_parse(const char *spec, struct sl_sim_spec *ret, struct sl_err *err)
{
    if (strchr(spec, '/')) {
        SL_CLEANUP(free) char *text = NULL;
        int r = sl_fs_read(AT_FDCWD, spec, SPEC_FILE_MAX, &text, NULL, err);
        if (r < 0)
            return sl_err_wrap(err, "simulated GPU spec");
        return sl_sim_spec_parse_text(text, spec, ret, err);
    }
    const char *where = "simulated GPU spec";
    struct draft d;
    draft_init(&d);
    SL_CLEANUP(free) char *copy = strdup(spec);
    if (!copy)
        return sl_err_set(err, -ENOMEM, "out of memory");
    char *at = strchr(copy, '@');
    if (at) {
        *at = '\0';
        int r = set_seed(&d, at + 1, where, err);
        if (r < 0)
            return r;
    }
    char *rest = copy, *word;
    while ((word = strsep(&rest, ",")) != NULL) {
        int r = add_devices(&d, word, where, err);
        if (r < 0)
            return r;
    }
    return finish(&d, where, ret, err);
}

/* ---- the file form ---- */

struct line {
    struct draft *draft;
    const char *key;
    const char *value;
    size_t first, last; /* devices the line is about: [first, last) */
    char where[300];
};

static int bad_value(const struct line *l, const char *want, struct sl_err *err)
{
    return sl_err_set(err, -EINVAL, "%s: %s = \"%.60s\": expected %s", l->where, l->key, l->value,
                      want);
}

static int parse_u64(const struct line *l, uint64_t max, uint64_t *ret, struct sl_err *err)
{
    char *end;
    errno = 0;
    unsigned long long v = strtoull(l->value, &end, 10);
    if (!isdigit((unsigned char)l->value[0]) || *end != '\0' || errno != 0 || v > max) {
        char want[64];
        (void)snprintf(want, sizeof(want), "a whole number up to %llu", (unsigned long long)max);
        return bad_value(l, want, err);
    }
    *ret = v;
    return 0;
}

static int parse_bytes(const struct line *l, uint64_t *ret, struct sl_err *err)
{
    struct sl_memory_amount amount;
    int r = sl_parse_memory(l->value, &amount, err);
    if (r < 0)
        return sl_err_wrap(err, "%s: %s", l->where, l->key);
    if (amount.percent)
        return bad_value(l, "an amount such as 80Gi", err);
    *ret = amount.bytes;
    return 0;
}

static int set_memory(struct line *l, struct sl_sim_device *d, struct sl_err *err)
{
    return parse_bytes(l, &d->memory_total_bytes, err);
}

static int set_bandwidth(struct line *l, struct sl_sim_device *d, struct sl_err *err)
{
    return parse_bytes(l, &d->memory_bandwidth_bytes_per_s, err);
}

static int set_context(struct line *l, struct sl_sim_device *d, struct sl_err *err)
{
    return parse_bytes(l, &d->context_overhead_bytes, err);
}

static int set_sms(struct line *l, struct sl_sim_device *d, struct sl_err *err)
{
    uint64_t v = 0;
    int r = parse_u64(l, 1024, &v, err);
    if (r == 0 && v == 0)
        return bad_value(l, "at least one", err);
    if (r == 0)
        d->sm_count = (uint32_t)v;
    return r;
}

static int set_nvlinks(struct line *l, struct sl_sim_device *d, struct sl_err *err)
{
    uint64_t v = 0;
    int r = parse_u64(l, 18, &v, err);
    if (r == 0)
        d->nvlinks = (uint32_t)v;
    return r;
}

static int set_numa(struct line *l, struct sl_sim_device *d, struct sl_err *err)
{
    uint64_t v = 0;
    if (strcmp(l->value, "-1") == 0) {
        d->numa_node = -1;
    } else {
        int r = parse_u64(l, 63, &v, err);
        if (r < 0)
            return r;
        d->numa_node = (int32_t)v;
    }
    l->draft->numa_given[d - l->draft->spec.devices] = true;
    return 0;
}

static int set_name(struct line *l, struct sl_sim_device *d, struct sl_err *err)
{
    if (l->value[0] == '\0' || strlen(l->value) >= sizeof(d->name))
        return bad_value(l, "a name of 1 to 63 characters", err);
    (void)snprintf(d->name, sizeof(d->name), "%s", l->value);
    return 0;
}

/* Digits of a base up to `most`, then `end`; NULL when that is not what is there. */
static const char *read_field(const char *s, int base, size_t most, char end, uint32_t *ret)
{
    const char *digits = base == 16 ? "0123456789abcdefABCDEF" : "0123456789";
    size_t n = strspn(s, digits);
    if (n == 0 || n > most || s[n] != end)
        return NULL;
    *ret = (uint32_t)strtoul(s, NULL, base);
    return s + n + (end != '\0');
}

bool sl_sim_pci_parse(const char *text, uint32_t *domain, uint32_t *bus, uint32_t *device)
{
    const char *first = strchr(text, ':'), *rest = text;
    uint32_t function;
    *domain = 0;
    if (first && strchr(first + 1, ':'))
        rest = read_field(text, 16, 8, ':', domain);
    rest = rest ? read_field(rest, 16, 2, ':', bus) : NULL;
    rest = rest ? read_field(rest, 16, 2, '.', device) : NULL;
    rest = rest ? read_field(rest, 16, 1, '\0', &function) : NULL;
    return rest && *device <= 31 && function == 0;
}

static int set_pci(struct line *l, struct sl_sim_device *d, struct sl_err *err)
{
    uint32_t domain, bus, device;
    if (!sl_sim_pci_parse(l->value, &domain, &bus, &device))
        return bad_value(l, "a PCI address such as 0000:1b:00.0", err);
    d->pci_domain = domain;
    d->pci_bus = bus;
    d->pci_device = device;
    l->draft->pci_given[d - l->draft->spec.devices] = true;
    return 0;
}

/* The 36 characters of a UUID; false when they are not one. */
static bool read_uuid(const char *p, uint8_t out[16])
{
    size_t n = 0;
    for (size_t i = 0; i < 36;) {
        if (i == 8 || i == 13 || i == 18 || i == 23) {
            if (p[i++] != '-')
                return false;
            continue;
        }
        if (!isxdigit((unsigned char)p[i]) || !isxdigit((unsigned char)p[i + 1]))
            return false;
        char two[3] = {p[i], p[i + 1], '\0'};
        out[n++] = (uint8_t)strtoul(two, NULL, 16);
        i += 2;
    }
    return true;
}

static int set_uuid(struct line *l, struct sl_sim_device *d, struct sl_err *err)
{
    const char *p = strncmp(l->value, "GPU-", 4) == 0 ? l->value + 4 : l->value;
    if (strlen(p) != 36 || !read_uuid(p, d->uuid))
        return bad_value(l, "a UUID such as GPU-01234567-89ab-cdef-0123-456789abcdef", err);
    l->draft->uuid_given[d - l->draft->spec.devices] = true;
    return 0;
}

static int set_clique(struct line *l, struct sl_sim_device *d, struct sl_err *err)
{
    const char *p = l->value;
    if (strlen(p) < 38 || p[36] != '.' || !read_uuid(p, d->cluster) ||
        !read_field(p + 37, 10, 9, '\0', &d->clique))
        return bad_value(l, "a cluster and clique: 01234567-89ab-cdef-0123-456789abcdef.1", err);
    return 0;
}

static int set_vgpu(struct line *l, struct sl_sim_device *d, struct sl_err *err)
{
    static const char *const words[] = {"no", "licensed", "unlicensed", "untold"};
    for (uint32_t i = 0; i < SL_ARRAY_LEN(words); i++)
        if (strcmp(l->value, words[i]) == 0) {
            d->vgpu = i;
            return 0;
        }
    return bad_value(l, "no, licensed, unlicensed or untold", err);
}

static int set_driver(struct line *l, struct sl_err *err)
{
    uint32_t number;
    const char *rest = read_field(l->value, 10, 3, '.', &number);
    const char *patch = rest ? read_field(rest, 10, 3, '.', &number) : NULL;
    if (!rest || !read_field(patch ? patch : rest, 10, 3, '\0', &number))
        return bad_value(l, "a driver version such as 580.159.04", err);
    (void)snprintf(l->draft->spec.driver_version, sizeof(l->draft->spec.driver_version), "%s",
                   l->value);
    return 0;
}

static int set_cuda(struct line *l, struct sl_err *err)
{
    uint32_t major, minor;
    const char *rest = read_field(l->value, 10, 2, '.', &major);
    if (!rest || !read_field(rest, 10, 2, '\0', &minor))
        return bad_value(l, "a CUDA version such as 13.0", err);
    l->draft->spec.cuda_version = major * 1000 + minor * 10;
    return 0;
}

static const struct {
    const char *key;
    int (*set)(struct line *l, struct sl_sim_device *d, struct sl_err *err);
    bool one_only; /* means nothing for "device = h200x4" */
} device_keys[] = {
    {"memory", set_memory, false},   {"bandwidth", set_bandwidth, false},
    {"context", set_context, false}, {"sms", set_sms, false},
    {"nvlinks", set_nvlinks, false}, {"numa", set_numa, false},
    {"name", set_name, false},       {"pci", set_pci, true},
    {"uuid", set_uuid, true},        {"clique", set_clique, false},
    {"vgpu", set_vgpu, false},
};

static int apply_line(struct line *l, struct sl_err *err)
{
    struct draft *d = l->draft;
    if (strcmp(l->key, "device") == 0) {
        l->first = d->spec.count;
        int r = add_devices(d, l->value, l->where, err);
        l->last = d->spec.count;
        return r;
    }
    if (strcmp(l->key, "driver") == 0)
        return set_driver(l, err);
    if (strcmp(l->key, "cuda") == 0)
        return set_cuda(l, err);
    if (strcmp(l->key, "seed") == 0)
        return set_seed(d, l->value, l->where, err);
    for (size_t i = 0; i < SL_ARRAY_LEN(device_keys); i++) {
        if (strcmp(l->key, device_keys[i].key) != 0)
            continue;
        if (l->first == l->last)
            return sl_err_set(err, -EINVAL, "%s: \"%s\" comes before any \"device = …\" line",
                              l->where, l->key);
        if (device_keys[i].one_only && l->last - l->first > 1)
            return sl_err_set(err, -EINVAL,
                              "%s: \"%s\" belongs to one card, but the line above it names %zu; "
                              "write one \"device = …\" line for each",
                              l->where, l->key, l->last - l->first);
        for (size_t k = l->first; k < l->last; k++) {
            int r = device_keys[i].set(l, &d->spec.devices[k], err);
            if (r < 0)
                return r;
        }
        return 0;
    }
    return sl_err_set(
        err, -EINVAL,
        "%s: the key \"%.40s\" is not known; the known ones are device, driver, cuda, "
        "seed, memory, bandwidth, context, sms, nvlinks, numa, clique, vgpu, name, pci, uuid",
        l->where, l->key);
}

static char *trim(char *s)
{
    while (isspace((unsigned char)*s))
        s++;
    size_t n = strlen(s);
    while (n > 0 && isspace((unsigned char)s[n - 1]))
        s[--n] = '\0';
    return s;
}

int sl_sim_spec_parse_text(const char *text, const char *where, struct sl_sim_spec *ret,
                           struct sl_err *err)
{
    struct draft d;
    draft_init(&d);
    SL_CLEANUP(free) char *copy = strdup(text);
    if (!copy)
        return sl_err_set(err, -ENOMEM, "out of memory");
    struct line l = {.draft = &d};
    char *rest = copy, *raw;
    for (unsigned n = 1; (raw = strsep(&rest, "\n")) != NULL; n++) {
        (void)snprintf(l.where, sizeof(l.where), "%.250s:%u", where, n);
        char *hash = strchr(raw, '#');
        if (hash)
            *hash = '\0';
        char *key = trim(raw);
        if (*key == '\0')
            continue;
        char *eq = strchr(key, '=');
        if (!eq)
            return sl_err_set(err, -EINVAL, "%s: \"%.60s\" is not a \"key = value\" line", l.where,
                              key);
        *eq = '\0';
        l.key = trim(key);
        l.value = trim(eq + 1);
        int r = apply_line(&l, err);
        if (r < 0)
            return r;
    }
    return finish(&d, where, ret, err);
}

/* ---- NVLink ---- */

/* The cards of a fabric in order; returns how many, and where `device` stands among them. */
static size_t fabric_members(const struct sl_sim_spec *spec, size_t device,
                             size_t members[SL_SIM_MAX_DEVICES], size_t *ret_self)
{
    size_t n = 0;
    for (size_t i = 0; i < spec->count; i++) {
        if (spec->devices[i].nvlink_fabric != spec->devices[device].nvlink_fabric)
            continue;
        if (i == device)
            *ret_self = n;
        members[n++] = i;
    }
    return n;
}

int sl_sim_nvlink_peer(const struct sl_sim_spec *spec, size_t device, uint32_t link)
{
    if (device >= spec->count || link >= spec->devices[device].nvlinks ||
        spec->devices[device].nvlink_fabric == 0)
        return SL_SIM_LINK_NONE;
    size_t members[SL_SIM_MAX_DEVICES] = {0}, self = 0;
    size_t n = fabric_members(spec, device, members, &self);
    if (n < 2)
        return SL_SIM_LINK_NONE;
    if (n > 4)
        return SL_SIM_LINK_SWITCH;
    uint32_t per_peer = spec->devices[device].nvlinks / (uint32_t)(n - 1);
    size_t k = per_peer ? link / per_peer : n;
    if (k >= n - 1)
        return SL_SIM_LINK_NONE; /* links left over when they do not divide */
    return (int)members[k < self ? k : k + 1];
}

uint32_t sl_sim_nvlink_count(const struct sl_sim_spec *spec, size_t a, size_t b)
{
    uint32_t count = 0;
    if (a >= spec->count || b >= spec->count || a == b ||
        spec->devices[a].nvlink_fabric != spec->devices[b].nvlink_fabric)
        return 0;
    for (uint32_t l = 0; l < spec->devices[a].nvlinks; l++) {
        int peer = sl_sim_nvlink_peer(spec, a, l);
        if (peer == SL_SIM_LINK_SWITCH || peer == (int)b)
            count++;
    }
    return count;
}
