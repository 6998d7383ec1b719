/* SPDX-License-Identifier: Apache-2.0 */
#include "arbiter/rules.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "arbiter/errors.h"
#include "base/cleanup.h"
#include "base/fsutil.h"
#include "base/outline.h"
#include "base/quantity.h"
#include "base/units.h"
#include "base/words.h"
#include "base/xalloc.h"
#include "share/share.h"

#define FILE_BYTES_MAX (256UL << 10)
#define TENANTS_MAX    1000000
/* Percent of one GPU: a machine has at most so many. */
#define CORES_MAX      12800

/* An error at the value of a key. */
#define AT_VALUE(file, n, err, ...)                                                                \
    sl_outline_error(file, (n)->value_line, (n)->value_column, -EINVAL, err, __VA_ARGS__)
#define AT_KEY(file, n, err, ...)                                                                  \
    sl_outline_error(file, (n)->line, (n)->column, -EINVAL, err, __VA_ARGS__)

/* --- amounts --- */

static int read_memory(const char *text, uint64_t *ret, struct sl_err *err)
{
    struct sl_memory_amount amount = {0};
    int rc = sl_parse_memory(text, &amount, err);
    if (rc == 0 && amount.percent)
        rc = sl_err_set(err, -EINVAL, SL_E_RULES_PERCENT, text);
    *ret = amount.bytes;
    return rc;
}

/* Percent of one GPU, for all GPUs together: more than 100 where there are several. */
static int read_cores(const char *text, uint64_t *ret, struct sl_err *err)
{
    unsigned __int128 billionths = 0;
    const char *rest = sl_decimal_read(text, &billionths);
    if (rest && *rest == '%')
        rest++;
    unsigned __int128 permille = billionths / 100000000U;
    if (!rest || *rest || permille == 0 || permille > CORES_MAX * 10ULL || billionths % 100000000U)
        return sl_err_set(err, -EINVAL, SL_E_RULES_CORES, text);
    *ret = (uint64_t)permille;
    return 0;
}

static int read_tenants(const char *text, uint64_t *ret, struct sl_err *err)
{
    const char *rest = sl_number_read(text, TENANTS_MAX, ret);
    if (!rest || *rest)
        return sl_err_set(err, -EINVAL, SL_E_RULES_TENANTS, text, TENANTS_MAX);
    return 0;
}

static int read_priority(const char *text, uint64_t *ret, struct sl_err *err)
{
    enum sl_priority level = SL_PRIORITY_NORMAL;
    int rc = sl_priority_parse(text, &level, err);
    *ret = (uint64_t)level;
    return rc;
}

static const char *const limit_keys[] = {"memory", "cores", "tenants", "priority", NULL};

static int read_limit(const char *file, const struct sl_outline *n, int kind, struct sl_limit *ret,
                      struct sl_err *err)
{
    static int (*const readers[])(const char *, uint64_t *,
                                  struct sl_err *) = {[SL_LIMIT_MEMORY] = read_memory,
                                                      [SL_LIMIT_CORES] = read_cores,
                                                      [SL_LIMIT_TENANTS] = read_tenants,
                                                      [SL_LIMIT_PRIORITY] = read_priority};
    struct sl_err why = SL_ERR_INIT;
    *ret = (struct sl_limit){SL_LIMIT_NONE, n->line};
    if (n->value && strcmp(n->value, "unlimited") == 0)
        return 0;
    if (!n->value || !n->value[0])
        return AT_KEY(file, n, err, SL_E_RULES_NO_VALUE, n->key);
    return readers[kind](n->value, &ret->most, &why) < 0 ? AT_VALUE(file, n, err, "%s", why.msg)
                                                         : 0;
}

/* --- keys --- */

static int unknown_key(const char *file, const struct sl_outline *n, const char *const *known,
                       const char *all, struct sl_err *err)
{
    const char *close = sl_word_closest(n->key, known);
    if (close)
        return AT_KEY(file, n, err, SL_E_RULES_KEY_NEAR, n->key, close);
    return AT_KEY(file, n, err, SL_E_RULES_KEY, n->key, all);
}

static int need_block(const char *file, const struct sl_outline *n, struct sl_err *err)
{
    return n->value ? AT_VALUE(file, n, err, SL_E_RULES_BLOCK, n->key) : 0;
}

static int read_limits(const char *file, const struct sl_outline *block, struct sl_limits *ret,
                       struct sl_err *err)
{
    *ret = sl_limits_none();
    int rc = need_block(file, block, err);
    for (const struct sl_outline *n = block->first; n && rc == 0; n = n->next) {
        int kind = sl_word_find(limit_keys, n->key);
        if (kind < 0)
            return unknown_key(file, n, limit_keys, "memory, cores, tenants and priority", err);
        rc = read_limit(file, n, kind, &ret->of[kind], err);
    }
    return rc;
}

static int read_entries(const char *file, const struct sl_outline *block, struct sl_rule **ret,
                        size_t *ret_count, struct sl_err *err)
{
    int rc = need_block(file, block, err);
    for (const struct sl_outline *n = block->first; n && rc == 0; n = n->next) {
        *ret = sl_xreallocarray(*ret, *ret_count + 1, sizeof(**ret));
        struct sl_rule *rule = &(*ret)[(*ret_count)++];
        *rule = (struct sl_rule){.name = sl_xstrdup(n->key), .line = n->line, .column = n->column};
        rc = read_limits(file, n, &rule->limits, err);
    }
    return rc;
}

static int read_group(const struct sl_outline *n, struct sl_rules *rules, struct sl_err *err)
{
    if (!n->value || !n->value[0])
        return AT_KEY(rules->file, n, err, SL_E_RULES_NO_VALUE, n->key);
    free(rules->group);
    rules->group = sl_xstrdup(n->value);
    rules->group_line = n->value_line;
    rules->group_column = n->value_column;
    return 0;
}

static int read_file(const struct sl_outline *root, struct sl_rules *r, struct sl_err *err)
{
    static const char *const keys[] = {"group", "defaults", "users", "groups", NULL};
    int rc = 0;
    for (const struct sl_outline *n = root->first; n && rc == 0; n = n->next) {
        switch (sl_word_find(keys, n->key)) {
        case 0:
            rc = read_group(n, r, err);
            break;
        case 1:
            rc = read_limits(r->file, n, &r->defaults, err);
            break;
        case 2:
            rc = read_entries(r->file, n, &r->users, &r->user_count, err);
            break;
        case 3:
            rc = read_entries(r->file, n, &r->groups, &r->group_count, err);
            break;
        default:
            rc = unknown_key(r->file, n, keys, "group, defaults, users and groups", err);
        }
    }
    return rc;
}

static struct sl_rules *rules_new(const char *file)
{
    struct sl_rules *r = sl_xcalloc(1, sizeof(*r));
    r->file = sl_xstrdup(file);
    r->group = sl_xstrdup(SL_RULES_GROUP);
    r->defaults = sl_limits_none();
    return r;
}

/* Only good rules are given out. */
static int give(int rc, struct sl_rules *r, struct sl_rules **ret)
{
    if (rc < 0)
        sl_rules_free(r);
    else
        *ret = r;
    return rc;
}

int sl_rules_parse(const char *file, const char *text, size_t size, struct sl_rules **ret,
                   struct sl_err *err)
{
    struct sl_outline *root = NULL;
    int rc = sl_outline_read(file, text, size, &root, err);
    if (rc < 0)
        return rc;
    struct sl_rules *r = rules_new(file);
    rc = read_file(root, r, err);
    sl_outline_free(root);
    return give(rc, r, ret);
}

static void entries_free(struct sl_rule *list, size_t count)
{
    for (size_t i = 0; i < count; i++)
        free(list[i].name);
    free(list);
}

void sl_rules_free(struct sl_rules *r)
{
    if (!r)
        return;
    entries_free(r->users, r->user_count);
    entries_free(r->groups, r->group_count);
    free(r->file);
    free(r->group);
    free(r);
}

/* --- the system's users and groups --- */

/* A number is an id, unless somebody has it as a name. */
static bool is_id(const char *name, unsigned *ret)
{
    uint64_t n = 0;
    const char *rest = sl_number_read(name, UINT32_MAX - 1, &n);
    *ret = (unsigned)n;
    return rest && !*rest;
}

#define ENTRY_BYTES 65536 /* a group may have thousands of members */

static bool find_user(const char *name, char *buf, unsigned *ret)
{
    struct passwd entry, *found = NULL;
    if (getpwnam_r(name, &entry, buf, ENTRY_BYTES, &found) != 0 || !found)
        return is_id(name, ret);
    *ret = entry.pw_uid;
    return true;
}

static bool find_group(const char *name, char *buf, unsigned *ret)
{
    struct group entry, *found = NULL;
    if (getgrnam_r(name, &entry, buf, ENTRY_BYTES, &found) != 0 || !found)
        return is_id(name, ret);
    *ret = entry.gr_gid;
    return true;
}

int sl_rules_resolve(struct sl_rules *r, struct sl_err *err)
{
    SL_CLEANUP(free) char *buf = sl_xmalloc(ENTRY_BYTES);
    for (size_t i = 0; i < r->user_count; i++)
        r->users[i].known = find_user(r->users[i].name, buf, &r->users[i].id);
    for (size_t i = 0; i < r->group_count; i++)
        r->groups[i].known = find_group(r->groups[i].name, buf, &r->groups[i].id);
    unsigned gid = 0;
    r->group_known = find_group(r->group, buf, &gid);
    r->gid = gid;
    if (r->group_known)
        return 0;
    if (!r->group_line)
        return sl_err_set(err, -ENOENT, SL_E_RULES_NO_GROUP, r->group, r->group, r->file);
    return sl_outline_error(r->file, r->group_line, r->group_column, -ENOENT, err,
                            SL_E_RULES_GROUP_UNKNOWN, r->group, r->group);
}

/* Who can write the file gives out the GPUs. */
static int check_file(const char *file, struct sl_err *err)
{
    struct stat st;
    if (stat(file, &st) != 0)
        return sl_err_errno(err, errno, "cannot read %s", file);
    if (!S_ISREG(st.st_mode))
        return sl_err_set(err, -EINVAL, SL_E_RULES_NO_FILE, file);
    if (geteuid() == 0 && (st.st_uid != 0 || (st.st_mode & S_IWOTH)))
        return sl_err_set(err, -EPERM, SL_E_RULES_WRITABLE, file, file, file);
    return 0;
}

int sl_rules_load(const char *file, bool must, struct sl_rules **ret, struct sl_err *err)
{
    SL_CLEANUP(free) char *text = NULL;
    size_t size = 0;
    struct sl_rules *r = NULL;
    int rc = check_file(file, err);
    if (rc == -ENOENT && !must) {
        r = rules_new(file);
        rc = 0;
    } else if (rc == 0) {
        rc = sl_fs_read(AT_FDCWD, file, FILE_BYTES_MAX, &text, &size, err);
        if (rc == 0)
            rc = sl_rules_parse(file, text, size, &r, err);
    }
    if (rc == 0)
        rc = sl_rules_resolve(r, err);
    return give(rc, r, ret);
}

/* --- whom they are for --- */

static const struct sl_rule *rule_of(const struct sl_rules *r, uid_t uid)
{
    for (size_t i = 0; i < r->user_count; i++)
        if (r->users[i].known && r->users[i].id == uid)
            return &r->users[i];
    return NULL;
}

static const struct sl_rule *group_rule(const struct sl_rules *r, const gid_t *gids, size_t count)
{
    for (size_t i = 0; i < r->group_count; i++)
        for (size_t k = 0; k < count; k++)
            if (r->groups[i].known && r->groups[i].id == gids[k])
                return &r->groups[i];
    return NULL;
}

struct sl_limits sl_rules_limits(const struct sl_rules *rules, uid_t uid, const gid_t *gids,
                                 size_t gid_count)
{
    struct sl_limits l = rules->defaults;
    const struct sl_rule *own = rule_of(rules, uid), *group = group_rule(rules, gids, gid_count);
    if (group)
        sl_limits_lay(&l, &group->limits);
    if (own)
        sl_limits_lay(&l, &own->limits);
    return l;
}

const char *sl_rules_user(const struct sl_rules *rules, uid_t uid)
{
    const struct sl_rule *own = rule_of(rules, uid);
    return own ? own->name : NULL;
}
