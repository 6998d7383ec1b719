/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/arbiter_system.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "arbiter/rules.h"
#include "base/cleanup.h"
#include "base/quantity.h"
#include "base/units.h"
#include "cli/errors.h"
#include "share/share.h"

#define FIRST_INHERITED 3 /* as sd_listen_fds(3) has it */

int sl_system_absent(const struct sl_world *world, struct sl_err *err)
{
    const struct sl_arbiter_dir *p = &world->place;
    /* A directory of its own has simulated cards of its own. */
    if (!p->system && (p->sim[0] || !sl_arbiter_dir_is_system(SL_SYSTEM_DIR, NULL)))
        return 0;
    return sl_err_set(err, -EBUSY, SL_E_SYSTEM_SERVES, p->system ? p->dir : SL_SYSTEM_DIR);
}

/* --- the socket of a service manager --- */

/* A number in the environment; 0: there is none. */
static uint64_t number_of(const char *variable)
{
    const char *text = getenv(variable);
    uint64_t n = 0;
    const char *rest = text ? sl_number_read(text, INT32_MAX, &n) : NULL;
    return rest && !*rest ? n : 0;
}

static int check_inherited(const struct sl_arbiter_dir *place, int fd, struct sl_err *err)
{
    struct sockaddr_un at = {.sun_family = AF_UNSPEC};
    socklen_t size = sizeof(at) - 1, n = sizeof(int);
    int type = 0, listens = 0;
    if (getsockname(fd, (struct sockaddr *)&at, &size) != 0 || at.sun_family != AF_UNIX ||
        getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &n) != 0 || type != SOCK_SEQPACKET ||
        getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &n) != 0 || !listens ||
        strcmp(at.sun_path, place->socket) != 0)
        return sl_err_set(err, -EINVAL, SL_E_SYSTEM_SOCKET, place->socket);
    return 0;
}

static int take_socket(const struct sl_arbiter_dir *place, struct sl_arbiter_options *options,
                       struct sl_err *err)
{
    uint64_t count = number_of("LISTEN_FDS");
    if (count == 0 || number_of("LISTEN_PID") != (uint64_t)getpid())
        return 0;
    int rc = count == 1 ? check_inherited(place, FIRST_INHERITED, err)
                        : sl_err_set(err, -EINVAL, SL_E_SYSTEM_SOCKET, place->socket);
    options->inherited = rc == 0;
    options->listen_fd = FIRST_INHERITED;
    (void)unsetenv("LISTEN_FDS"); /* not for the programs that we start */
    (void)unsetenv("LISTEN_PID");
    (void)unsetenv("LISTEN_FDNAMES");
    return rc;
}

/* --- the directory --- */

/* Simulated cards are a file that every process on them maps. */
static int share_cards(const struct sl_arbiter_dir *place, gid_t group, struct sl_err *err)
{
    if (!place->sim[0])
        return 0;
    SL_CLEANUP(close)
    int fd = open(place->sim_state, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0660);
    if (fd < 0 || fchown(fd, 0, group) != 0 || fchmod(fd, 0660) != 0)
        return sl_err_errno(err, errno, "cannot share %s with the group", place->sim_state);
    if (place->parent[0] && chmod(place->parent, 0755) != 0)
        return sl_err_errno(err, errno, "cannot open %s to the users", place->parent);
    return 0;
}

static void warn_unknown(const struct sl_rules *rules, const char *kind, const struct sl_rule *list,
                         size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!list[i].known)
            sl_cli_complain(SL_E_SYSTEM_UNKNOWN, rules->file, list[i].line, list[i].column, kind,
                            list[i].name);
}

int sl_system_prepare(const struct sl_world *world, const char *config,
                      struct sl_arbiter_options *options, struct sl_err *err)
{
    const char *file = config ? config : SL_RULES_FILE;
    int rc = sl_rules_load(file, config != NULL, &options->rules, err);
    if (rc == 0) {
        warn_unknown(options->rules, "user", options->rules->users, options->rules->user_count);
        warn_unknown(options->rules, "group", options->rules->groups, options->rules->group_count);
        rc = share_cards(&world->place, options->rules->gid, err);
    }
    return rc < 0 ? rc : take_socket(&world->place, options, err);
}

/* --- check --- */

static void print_limits(const struct sl_limits *l)
{
    char b[32];
    const struct sl_limit *m = &l->of[SL_LIMIT_MEMORY], *c = &l->of[SL_LIMIT_CORES],
                          *t = &l->of[SL_LIMIT_TENANTS], *p = &l->of[SL_LIMIT_PRIORITY];
    if (m->line)
        (void)printf("  memory    %s\n", m->most == SL_LIMIT_NONE
                                             ? "unlimited"
                                             : sl_format_bytes(m->most, b, sizeof(b)));
    if (c->line && c->most == SL_LIMIT_NONE)
        (void)printf("  cores     unlimited\n");
    else if (c->line)
        (void)printf("  cores     %s %% of one GPU\n",
                     sl_format_cores((uint32_t)c->most, (uint32_t)c->most, b, sizeof(b)));
    if (t->line && t->most == SL_LIMIT_NONE)
        (void)printf("  tenants   unlimited\n");
    else if (t->line)
        (void)printf("  tenants   %llu\n", (unsigned long long)t->most);
    if (p->line)
        (void)printf("  priority  %s\n",
                     p->most == SL_LIMIT_NONE ? "unlimited" : sl_priority_name((unsigned)p->most));
}

static void print_entries(const char *kind, const struct sl_rule *list, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        (void)printf("%s %s%s\n", kind, list[i].name,
                     list[i].known ? "" : " (not known here: without effect)");
        print_limits(&list[i].limits);
    }
}

int sl_system_check(const char *file)
{
    struct sl_err err = SL_ERR_INIT;
    struct sl_rules *r = NULL;
    if (sl_rules_load(file ? file : SL_RULES_FILE, true, &r, &err) < 0) {
        sl_cli_complain("arbiter: %s", err.msg);
        return SL_EXIT_FAILED;
    }
    (void)printf("users of the group %s (gid %u) may use the arbiter\n", r->group,
                 (unsigned)r->gid);
    (void)printf("every user, in the sum of its tenants\n");
    print_limits(&r->defaults);
    print_entries("each user of the group", r->groups, r->group_count);
    print_entries("user", r->users, r->user_count);
    sl_rules_free(r);
    return sl_cli_finish(SL_EXIT_OK);
}
