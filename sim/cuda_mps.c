/* SPDX-License-Identifier: Apache-2.0 */
/* As a client of a (simulated) MPS server: joining it, its limits, and noticing that it is gone. */
#include "sim/cuda_int.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "sim/mps.h"

#define ANSWER_MS 5000

/* One line, byte by byte: nothing after it may be taken from the connection. */
static bool read_line(int fd, char *buf, size_t size)
{
    for (size_t n = 0; n + 1 < size; n++) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (poll(&p, 1, ANSWER_MS) <= 0 || recv(fd, &buf[n], 1, 0) != 1)
            return false;
        if (buf[n] == '\n') {
            buf[n] = '\0';
            return true;
        }
    }
    return false;
}

/* CUDA_MPS_PINNED_DEVICE_MEM_LIMIT, "0=1G,1=512M" by the client's numbers: may only lower. */
static void own_limits(void)
{
    const char *env = getenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT");
    char *copy = env ? strdup(env) : NULL, *save = NULL;
    for (char *w = copy ? strtok_r(copy, ",", &save) : NULL; w; w = strtok_r(NULL, ",", &save)) {
        char *end;
        uint64_t bytes;
        unsigned long i = strtoul(w, &end, 10);
        if (end == w || *end != '=' || i >= sim_p.mps.count || !sl_sim_mps_bytes(end + 1, &bytes))
            continue;
        uint64_t *limit = &sim_p.mps.limit_bytes[sim_p.mps.card[i]];
        if (*limit == 0 || bytes < *limit)
            *limit = bytes;
    }
    free(copy);
}

static bool parse_ready(const char *line)
{
    struct sim_mps *m = &sim_p.mps;
    int n = 0;
    if (sscanf(line, "ready %d %u%n", &m->server, &m->share_permille, &n) != 2)
        return false;
    for (const char *p = line + n; *p == ' ' && m->count < SL_SIM_MAX_DEVICES; p += n) {
        unsigned int card;
        unsigned long long bytes;
        if (sscanf(p, " %u=%llu%n", &card, &bytes, &n) != 2 || card >= sim_p.st->card_count)
            return false;
        m->card[m->count++] = card;
        m->limit_bytes[card] = bytes;
    }
    return m->share_permille > 0 && m->share_permille <= 1000;
}

CUresult sim_mps_join(void)
{
    const char *dir = getenv("CUDA_MPS_PIPE_DIRECTORY");
    const char *percent = getenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
    uint32_t own = 0;
    char line[SL_SIM_MPS_LINE];
    sim_p.mps = (struct sim_mps){.fd = -1};
    if (!dir || !*dir)
        return CUDA_SUCCESS;
    int fd = sl_sim_mps_connect(dir);
    if (fd == -ENOENT || fd == -ENOTDIR)
        return CUDA_SUCCESS; /* no daemon was ever there: without MPS, as the real one */
    if (fd < 0)
        return CUDA_ERROR_MPS_CONNECTION_FAILED;
    if (percent && !sl_sim_mps_percent(percent, &own))
        own = 0;
    int n = snprintf(line, sizeof(line), "client %u\n", own);
    unsigned int code = CUDA_ERROR_MPS_CONNECTION_FAILED;
    if (send(fd, line, (size_t)n, MSG_NOSIGNAL) == n && read_line(fd, line, sizeof(line)) &&
        sscanf(line, "refused %u", &code) != 1 && parse_ready(line)) {
        sim_p.mps.fd = fd;
        sim_p.mps.on = true;
        own_limits();
        return CUDA_SUCCESS;
    }
    (void)close(fd);
    return (CUresult)code;
}

void sim_mps_leave(void)
{
    if (sim_p.mps.on)
        (void)close(sim_p.mps.fd);
    sim_p.mps = (struct sim_mps){.fd = -1};
}

bool sim_mps_gone(void)
{
    char c;
    if (!sim_p.mps.on)
        return false;
    int saved = errno;
    ssize_t n = recv(sim_p.mps.fd, &c, 1, MSG_PEEK | MSG_DONTWAIT);
    bool gone = n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
    errno = saved;
    return gone;
}
