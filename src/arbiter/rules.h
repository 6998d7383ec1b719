/* SPDX-License-Identifier: Apache-2.0 */
/*
 * /etc/sluice/arbiter.yaml: who may use the system's arbiter, and how much each user may have.
 *
 *     group: sluice
 *     defaults: {memory: 40Gi, cores: 50, priority: normal, tenants: 4}
 *     users:
 *       alice: {memory: 80Gi, priority: high}
 *     groups:
 *       students: {memory: 20Gi, tenants: 2}
 *
 * Key by key: what a user's own entry says, else what the first of the user's groups in the file says, else the default.
 */
#ifndef SLUICE_ARBITER_RULES_H
#define SLUICE_ARBITER_RULES_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/err.h"
#include "policy/limits.h"

#define SL_RULES_FILE  "/etc/sluice/arbiter.yaml"
#define SL_RULES_GROUP "sluice"

/* An entry of `users` or `groups`. */
struct sl_rule {
    char *name;
    unsigned line, column;
    bool known;  /* the system has this user or group … */
    unsigned id; /* … with this uid or gid */
    struct sl_limits limits;
};

struct sl_rules {
    char *file;
    char *group;
    unsigned group_line, group_column; /* 0: the file does not name it */
    bool group_known;
    gid_t gid; /* of those who may use the arbiter */
    struct sl_limits defaults;
    struct sl_rule *users, *groups;
    size_t user_count, group_count;
};

/* The text of a file. Knows nothing of the system's users yet. */
int sl_rules_parse(const char *file, const char *text, size_t size, struct sl_rules **ret,
                   struct sl_err *err) SL_MUST_CHECK;

/* Asks the system for the users and groups. May block: where names come from a server. A group that may use the arbiter
 * must exist; an entry of an unknown user has no effect. */
int sl_rules_resolve(struct sl_rules *rules, struct sl_err *err) SL_MUST_CHECK;

/* Reads, parses and resolves. Without a file (and `must` false) there are no limits, and the group is SL_RULES_GROUP. */
int sl_rules_load(const char *file, bool must, struct sl_rules **ret,
                  struct sl_err *err) SL_MUST_CHECK;
void sl_rules_free(struct sl_rules *rules); /* NULL is fine */

/* What a user with these groups may have. */
struct sl_limits sl_rules_limits(const struct sl_rules *rules, uid_t uid, const gid_t *gids,
                                 size_t gid_count);
/* The user's name in the file; NULL: it has none there. */
const char *sl_rules_user(const struct sl_rules *rules, uid_t uid);

#endif
