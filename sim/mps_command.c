/* SPDX-License-Identifier: Apache-2.0 */
/* What nvidia-cuda-mps-control understands on its standard input. */
#include "sim/mps_daemon.h"

#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"

#define WORDS 5

static void __attribute__((format(printf, 2, 3))) say(struct mps_peer *p, const char *format, ...)
{
    char text[256];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (n > 0)
        (void)send(p->fd, text, (size_t)n < sizeof(text) ? (size_t)n : sizeof(text) - 1,
                   MSG_NOSIGNAL);
}

/* Limits of servers to come (no PID before the rest of the words), or of one there is. */
static struct mps_limits *limits_of(struct mps_daemon *d, struct mps_peer *p, char **word,
                                    bool by_pid)
{
    struct mps_server *s = by_pid ? mps_server_by_pid(d, atoi(word[1])) : NULL;
    if (by_pid && !s)
        say(p, "Failed to find server %s\n", word[1]);
    return by_pid ? (s ? &s->limits : NULL) : &d->limits;
}

static void percentage(struct mps_daemon *d, struct mps_peer *p, char **word, bool by_pid, bool set)
{
    struct mps_limits *l = limits_of(d, p, word, by_pid);
    const char *value = word[by_pid ? 2 : 1];
    uint32_t permille;
    if (!l)
        return;
    if (set && (!value || !sl_sim_mps_percent(value, &permille))) {
        say(p, "Invalid percentage value: %s\n", value ? value : "");
        return;
    }
    if (set)
        l->permille = permille;
    say(p, "%.1f\n", l->permille / 10.0);
}

static void pinned(struct mps_daemon *d, struct mps_peer *p, char **word, bool by_pid, bool set)
{
    struct mps_limits *l = limits_of(d, p, word, by_pid);
    const char *device = word[by_pid ? 2 : 1], *value = device ? word[by_pid ? 3 : 2] : NULL;
    uint64_t bytes = 0;
    char *end;
    if (!l)
        return;
    unsigned long i = device ? strtoul(device, &end, 10) : d->count;
    if (!device || end == device || *end != '\0' || i >= d->count) {
        say(p, "Invalid device ordinal: %s\n", device ? device : "");
        return;
    }
    if (set && (!value || !sl_sim_mps_bytes(value, &bytes))) {
        say(p, "Invalid memory limit: %s\n", value ? value : "");
        return;
    }
    if (set)
        l->bytes[i] = bytes;
    else if (l->bytes[i])
        say(p, "%lluM\n", (unsigned long long)(l->bytes[i] >> 20));
    else
        say(p, "No limit\n");
}

static void list_servers(struct mps_daemon *d, struct mps_peer *p)
{
    for (size_t i = 0; i < SL_SIM_MPS_SERVERS; i++)
        if (d->servers[i].pid)
            say(p, "%d\n", (int)d->servers[i].pid);
}

static void list_clients(struct mps_daemon *d, struct mps_peer *p, const char *server)
{
    struct mps_server *s = server ? mps_server_by_pid(d, atoi(server)) : NULL;
    if (!s) {
        say(p, "Failed to find server %s\n", server ? server : "");
        return;
    }
    for (size_t i = 0; i < SL_SIM_MPS_PEERS; i++)
        if (d->peers[i].fd >= 0 && d->peers[i].server == s->pid)
            say(p, "%d\n", (int)d->peers[i].pid);
}

/* The clients with a context on each device. */
static void list_by_device(struct mps_daemon *d, struct mps_peer *p, const char *server)
{
    for (uint32_t c = 0; c < d->count; c++) {
        say(p, "%s\n", d->st->cards[d->card[c]].desc.uuid_text);
        for (size_t i = 0; i < SL_SIM_MPS_PEERS; i++)
            if (d->peers[i].fd >= 0 && d->peers[i].server &&
                (!server || d->peers[i].server == atoi(server)))
                say(p, "%d\n", (int)d->peers[i].pid);
    }
}

static void status(struct mps_daemon *d, struct mps_peer *p, const char *server)
{
    struct mps_server *s = server ? mps_server_by_pid(d, atoi(server)) : NULL;
    if (s)
        say(p, "%s\n", s->fault ? "FAULT" : "ACTIVE");
    else
        say(p, "Failed to find server %s\n", server ? server : "");
}

/* Not of the real one: a client's exception, as the server sees it. */
static void simulate_fault(struct mps_daemon *d, struct mps_peer *p, const char *server)
{
    struct mps_server *s = server ? mps_server_by_pid(d, atoi(server)) : NULL;
    if (!s) {
        say(p, "Failed to find server %s\n", server ? server : "");
        return;
    }
    s->fault = mps_clients_of(d, s->pid) > 0;
    mps_log(d->server_log, "Server", s->pid,
            "Client caused a fatal exception; status change: FAULT");
}

static void start_server(struct mps_daemon *d, struct mps_peer *p, char **word)
{
    char *end = NULL;
    unsigned long uid =
        word[1] && strcmp(word[1], "-uid") == 0 && word[2] ? strtoul(word[2], &end, 10) : 0;
    if (!end || end == word[2] || *end != '\0')
        say(p, "Invalid user id: %s\n", word[1] && word[2] ? word[2] : "");
    else if (!mps_server_for(d, (uid_t)uid))
        say(p, "Failed to start a server for user %lu: another user's clients run\n", uid);
}

static void shutdown_server(struct mps_daemon *d, struct mps_peer *p, char **word)
{
    struct mps_server *s = word[1] ? mps_server_by_pid(d, atoi(word[1])) : NULL;
    if (!s)
        say(p, "Failed to find server %s\n", word[1] ? word[1] : "");
    else
        (void)kill(s->pid, word[2] && strcmp(word[2], "-f") == 0 ? SIGKILL : SIGTERM);
}

void mps_command(struct mps_daemon *d, struct mps_peer *p, char *line)
{
    char *word[WORDS + 1] = {NULL}, *save = NULL;
    size_t n = 0;
    for (char *w = strtok_r(line, " \t\r", &save); w && n < WORDS;
         w = strtok_r(NULL, " \t\r", &save))
        word[n++] = w;
    if (n == 0)
        return;
    const char *c = word[0];
    bool set = strncmp(c, "set_", 4) == 0, by_pid = n > 1 && !strstr(c, "_default_");
    if (strlen(c) < 4)
        say(p, "Unknown command: %s\n", c);
    else if (strcmp(c + 3, "_default_active_thread_percentage") == 0 ||
             (strcmp(c + 3, "_active_thread_percentage") == 0 && by_pid))
        percentage(d, p, word, by_pid, set);
    else if (strcmp(c + 3, "_default_device_pinned_mem_limit") == 0 ||
             (strcmp(c + 3, "_device_pinned_mem_limit") == 0 && by_pid))
        pinned(d, p, word, by_pid, set);
    else if (strcmp(c, "get_server_list") == 0)
        list_servers(d, p);
    else if (strcmp(c, "get_client_list") == 0)
        list_clients(d, p, word[1]);
    else if (strcmp(c, "get_device_client_list") == 0)
        list_by_device(d, p, word[1]);
    else if (strcmp(c, "get_server_status") == 0)
        status(d, p, word[1]);
    else if (strcmp(c, "start_server") == 0)
        start_server(d, p, word);
    else if (strcmp(c, "shutdown_server") == 0)
        shutdown_server(d, p, word);
    else if (strcmp(c, "simulate_fault") == 0)
        simulate_fault(d, p, word[1]);
    else if (strcmp(c, "quit") == 0)
        d->ending = true;
    else
        say(p, "Unknown command: %s\n", c);
}
