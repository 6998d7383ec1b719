/* SPDX-License-Identifier: Apache-2.0 */
/* `sluice top`: asks the arbiter once a second and shows the model (top_model.h) on a terminal. */
#include <errno.h>
#include <langinfo.h>
#include <locale.h>
#include <pwd.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/xalloc.h"
#include "cli/errors.h"
#include "cli/table.h"
#include "cli/status_words.h"
#include "cli/tenant_processes.h"
#include "cli/terminal.h"
#include "cli/top_model.h"
#include "cli/world.h"

struct top {
    struct sl_world world;
    struct sl_top model;
    int fd; /* to the arbiter; -1: none */
};

/* --- asking -------------------------------------------------------------------------------------- */

static void find_user(int pid, char ret[SL_TOP_USER])
{
    char path[32];
    struct stat st;
    struct passwd entry, *found = NULL;
    char buf[1024];
    ret[0] = '\0';
    (void)snprintf(path, sizeof(path), "/proc/%d", pid);
    if (pid <= 0 || stat(path, &st) != 0)
        return;
    if (getpwuid_r(st.st_uid, &entry, buf, sizeof(buf), &found) == 0 && found)
        (void)snprintf(ret, SL_TOP_USER, "%.15s", entry.pw_name);
    else
        (void)snprintf(ret, SL_TOP_USER, "%u", (unsigned)st.st_uid);
}

/* The user who started the tenant; for a pod, its namespace. */
static void find_owner(const struct sl_msg_tenant *m, char ret[SL_TOP_USER])
{
    char space[64];
    if (sl_client_about(m->about, "namespace", space, sizeof(space)))
        (void)snprintf(ret, SL_TOP_USER, "%.15s", space);
    else if (m->h.option) {
        (void)sl_status_user(m, space, sizeof(space));
        (void)snprintf(ret, SL_TOP_USER, "%.15s", space);
    } else
        find_user((int)m->creator_pid, ret);
}

static void hang_up(struct top *t)
{
    sl_cleanup_close(&t->fd);
    t->fd = -1;
}

static int connect_now(struct top *t, struct sl_err *err)
{
    if (t->fd < 0)
        t->fd = sl_client_connect(&t->world.place, err);
    return t->fd;
}

static void name_cards(struct top *t)
{
    char cards[sizeof(t->world.place.sim)];
    (void)snprintf(cards, sizeof(cards), "%s", t->world.place.sim);
    if (!cards[0] && sl_world_arbiter_cards(sl_client_peer_pid(t->fd), cards, sizeof(cards)) < 0)
        cards[0] = '\0';
    (void)snprintf(t->model.sim, sizeof(t->model.sim), "%.63s", cards);
}

/* Of a tenant that is gone no process is shown. */
static void sample_processes(struct top *t)
{
    struct sl_msg_process *list = NULL;
    struct sl_err err = SL_ERR_INIT;
    size_t count = 0;
    if (!t->model.unfolded[0])
        return;
    int rc = sl_tenant_processes(&t->world.place, &t->fd, t->model.unfolded, &list, &count, &err);
    if (rc < 0 && rc != -EOPNOTSUPP)
        hang_up(t);
    sl_top_take_processes(&t->model, list, count, rc == -EOPNOTSUPP ? err.msg : "");
}

static int sample(struct top *t, struct sl_err *err)
{
    struct sl_client_status status = {0};
    int rc = connect_now(t, err);
    if (rc >= 0)
        rc = sl_client_status(t->fd, &status, err);
    if (rc < 0) {
        hang_up(t);
        return rc;
    }
    char(*users)[SL_TOP_USER] =
        sl_xcalloc(status.tenant_count + status.waiter_count + 1, sizeof(*users));
    for (size_t i = 0; i < status.tenant_count; i++)
        find_owner(&status.tenant[i], users[i]);
    for (size_t i = 0; i < status.waiter_count; i++)
        find_user((int)status.waiter[i].pid, users[status.tenant_count + i]);
    sl_top_take(&t->model, &status, (const char(*)[SL_TOP_USER])users, sl_now_ns());
    name_cards(t);
    free(users);
    sl_client_status_free(&status);
    sample_processes(t);
    return 0;
}

/* --- changing ------------------------------------------------------------------------------------ */

/* As `sluice set NAME --OPTION TEXT` would. */
static int set_value(struct top *t, const struct sl_top_wish *w, struct sl_err *err)
{
    char option[16], text[sizeof(w->text)];
    (void)snprintf(option, sizeof(option), "--%s", w->option);
    memcpy(text, w->text, sizeof(text));
    char *argv[] = {option, text, NULL};
    struct sl_cli_args args = {.verb = sl_cli_verb_find("set")};
    struct sl_msg_lease lease;
    struct sl_msg_text remark;
    int rc = sl_cli_parse(2, argv, &args, err);
    if (rc == 0)
        rc = sl_world_lease(&args, &lease, err);
    if (rc < 0)
        return rc;
    memcpy(lease.name, w->name, sizeof(lease.name));
    rc = connect_now(t, err);
    return rc < 0 ? rc : sl_client_set(t->fd, &lease, &remark, err);
}

static int pause_tenant(struct top *t, const char *name, bool pause, struct sl_err *err)
{
    struct sl_msg_lease lease = {.fields = SL_FIELD_PAUSE, .flags = pause ? SL_LEASE_PAUSED : 0};
    struct sl_msg_text remark;
    (void)snprintf(lease.name, sizeof(lease.name), "%s", name);
    int rc = connect_now(t, err);
    return rc < 0 ? rc : sl_client_set(t->fd, &lease, &remark, err);
}

/* In nanoseconds after boot; UINT64_MAX: not known. */
static uint64_t began_ns(int pid)
{
    char path[40], text[1024];
    unsigned long long ticks;
    (void)snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    SL_CLEANUP(fclose) FILE *f = fopen(path, "re");
    if (!f || !fgets(text, sizeof(text), f))
        return UINT64_MAX;
    const char *end = strrchr(text, ')'); /* a name may contain anything */
    if (!end || sscanf(end + 1,
                       " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d "
                       "%*d %llu",
                       &ticks) != 1)
        return UINT64_MAX;
    return (uint64_t)ticks * (SL_NS_PER_S / (uint64_t)sysconf(_SC_CLK_TCK));
}

static int end_tenant(const struct top *t, const char *name, struct sl_err *err)
{
    struct timespec boot;
    for (size_t i = 0; i < t->model.tenant_count; i++) {
        const struct sl_msg_tenant *m = &t->model.tenants[i].m;
        if (strcmp(m->name, name) != 0)
            continue;
        if (sl_client_about(m->about, "lease", NULL, 0))
            return sl_err_set(err, -EPERM, SL_E_TOP_LEASE, name, name);
        if (m->flags & SL_LEASE_KEEP)
            return sl_err_set(err, -EPERM, SL_E_TOP_KEPT, name);
        (void)clock_gettime(CLOCK_BOOTTIME, &boot);
        uint64_t now = (uint64_t)boot.tv_sec * SL_NS_PER_S + (uint64_t)boot.tv_nsec;
        /* A process that began after the tenant is not its creator: the kernel gave the number to another process. */
        if (m->creator_pid == 0 || began_ns((int)m->creator_pid) > now - m->age_ns + SL_NS_PER_S)
            return sl_err_set(err, -ESRCH, SL_E_TOP_NO_STARTER, name);
        if (kill((pid_t)m->creator_pid, SIGTERM) != 0)
            return sl_err_errno(err, errno, "cannot end process %u", m->creator_pid);
        return 0;
    }
    return sl_err_set(err, -ENOENT, SL_E_TOP_GONE, name);
}

static void fulfil(struct top *t, const struct sl_top_wish *w)
{
    struct sl_err err = SL_ERR_INIT;
    char *said = t->model.message;
    size_t size = sizeof(t->model.message);
    if (w->action == SL_TOP_SET) {
        if (set_value(t, w, &err) < 0)
            (void)snprintf(said, size, "%s", err.msg);
        else
            (void)snprintf(said, size, "%s of %s is %s now", w->option, w->name, w->text);
    } else if (w->action == SL_TOP_PAUSE) {
        const struct sl_top_tenant *one = sl_top_selected(&t->model);
        bool pause = one && !(one->m.flags & SL_LEASE_PAUSED);
        if (pause_tenant(t, w->name, pause, &err) < 0)
            (void)snprintf(said, size, "%s", err.msg);
        else
            (void)snprintf(said, size, pause ? "%s is paused: z lets it go on" : "%s goes on",
                           w->name);
    } else if (w->action == SL_TOP_END) {
        if (end_tenant(t, w->name, &err) < 0)
            (void)snprintf(said, size, "%s", err.msg);
        else
            (void)snprintf(said, size, "%s was asked to end", w->name);
    }
}

/* --- showing ------------------------------------------------------------------------------------- */

static const char *time_of_day(char buf[16])
{
    time_t now = time(NULL);
    struct tm tm;
    if (!localtime_r(&now, &tm) || strftime(buf, 16, "%H:%M:%S", &tm) == 0)
        buf[0] = '\0';
    return buf;
}

static bool speaks_utf8(void)
{
    return strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
}

static int once(struct top *t, struct sl_err *err)
{
    char clock[16];
    struct sl_screen s;
    struct winsize size = {0};
    int rc = sample(t, err);
    if (rc < 0)
        return rc;
    (void)ioctl(STDOUT_FILENO, TIOCGWINSZ, &size);
    /* As many rows as needed: all GPUs in full, all tenants, all that wait. */
    int rows =
        (int)(8 + 5 * t->model.gpu_count + t->model.tenant_count + 6 * t->model.waiter_count);
    sl_screen_init(&s, rows, size.ws_col ? size.ws_col : 80, speaks_utf8());
    sl_top_draw(&t->model, &s, time_of_day(clock), true);
    sl_screen_print(&s, stdout, sl_table_colour(stdout));
    sl_screen_free(&s);
    return 0;
}

static void show(const struct top *t, struct sl_terminal *terminal)
{
    char clock[16];
    struct sl_screen s;
    int rows, cols;
    sl_terminal_size(terminal, &rows, &cols);
    sl_screen_init(&s, rows, cols, speaks_utf8());
    sl_top_draw(&t->model, &s, time_of_day(clock), false);
    sl_terminal_show(terminal, &s);
    sl_screen_free(&s);
}

static void live(struct top *t, struct sl_terminal *terminal)
{
    uint64_t next = 0;
    for (;;) {
        struct sl_err err = SL_ERR_INIT;
        uint64_t now = sl_now_ns();
        if (now >= next) {
            if (sample(t, &err) < 0)
                (void)snprintf(t->model.trouble, sizeof(t->model.trouble), "%s", err.msg);
            next = now + SL_NS_PER_S;
        }
        show(t, terminal);
        now = sl_now_ns();
        int key = sl_terminal_key(terminal, next > now ? next - now : 0);
        if (key == 0)
            continue;
        struct sl_top_wish w = sl_top_press(&t->model, key);
        if (w.action == SL_TOP_QUIT)
            return;
        fulfil(t, &w);
        if (w.action != SL_TOP_NOTHING)
            next = 0;
    }
}

int sl_cmd_top(const struct sl_cli_args *args)
{
    struct sl_err err = SL_ERR_INIT;
    struct top t = {.fd = -1};
    (void)setlocale(LC_CTYPE, "");
    int rc = sl_world_find(args, &t.world, &err);
    if (rc == 0 && sl_cli_value(args, "once")) {
        rc = once(&t, &err);
    } else if (rc == 0) {
        struct sl_terminal *terminal = NULL;
        rc = sl_terminal_open(&terminal, &err);
        if (rc == 0)
            live(&t, terminal);
        sl_terminal_close(terminal);
    }
    hang_up(&t);
    sl_top_free(&t.model);
    if (rc == 0)
        return sl_cli_finish(SL_EXIT_OK);
    sl_cli_complain("top: %s", err.msg);
    return SL_EXIT_FAILED;
}
