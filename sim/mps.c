/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/mps.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/cleanup.h"

static int address(const char *pipe_dir, int *ret_dir, struct sockaddr_un *ret)
{
    *ret_dir = open(pipe_dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (*ret_dir < 0)
        return -errno;
    *ret = (struct sockaddr_un){.sun_family = AF_UNIX};
    (void)snprintf(ret->sun_path, sizeof(ret->sun_path), "/proc/self/fd/%d/" SL_SIM_MPS_SOCKET,
                   *ret_dir);
    return 0;
}

int sl_sim_mps_connect(const char *pipe_dir)
{
    struct sockaddr_un at;
    SL_CLEANUP(close) int dir = -1;
    int r = address(pipe_dir, &dir, &at);
    if (r < 0)
        return r;
    SL_CLEANUP(close) int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (const struct sockaddr *)&at, sizeof(at)) != 0)
        return -errno;
    return sl_take_fd(fd);
}

int sl_sim_mps_listen(const char *pipe_dir)
{
    struct sockaddr_un at;
    SL_CLEANUP(close) int dir = -1;
    int r = address(pipe_dir, &dir, &at);
    if (r < 0 || dir < 0)
        return r;
    SL_CLEANUP(close) int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    (void)unlinkat(dir, SL_SIM_MPS_SOCKET, 0);
    if (fd < 0 || bind(fd, (const struct sockaddr *)&at, sizeof(at)) != 0 || listen(fd, 128) != 0)
        return -errno;
    if (fchmodat(dir, SL_SIM_MPS_SOCKET, 0666, 0) != 0) /* tenants are other users */
        return -errno;
    return sl_take_fd(fd);
}

bool sl_sim_mps_bytes(const char *text, uint64_t *ret)
{
    char *end;
    unsigned int shift = 0;
    if (*text < '0' || *text > '9')
        return false;
    errno = 0;
    unsigned long long v = strtoull(text, &end, 10);
    if (strcasecmp(end, "K") == 0 || strcasecmp(end, "KB") == 0)
        shift = 10;
    else if (strcasecmp(end, "M") == 0 || strcasecmp(end, "MB") == 0)
        shift = 20;
    else if (strcasecmp(end, "G") == 0 || strcasecmp(end, "GB") == 0)
        shift = 30;
    else if (*end != '\0')
        return false;
    if (errno != 0 || v > UINT64_MAX >> shift)
        return false;
    *ret = (uint64_t)v << shift;
    return true;
}

bool sl_sim_mps_percent(const char *text, uint32_t *ret_permille)
{
    char *end;
    double v = strtod(text, &end);
    if (end == text || *end != '\0' || !(v > 0 && v <= 100))
        return false;
    *ret_permille = (uint32_t)(v * 10 + 0.5);
    if (*ret_permille == 0)
        *ret_permille = 1;
    return true;
}

static uint32_t choose_one(const struct sl_sim_state *st, const char *word, const uint32_t *cards,
                           uint32_t count)
{
    char *end;
    while (*word == ' ')
        word++;
    if (strncasecmp(word, "GPU-", 4) == 0) {
        for (uint32_t i = 0; i < count; i++)
            if (strncasecmp(st->cards[cards[i]].desc.uuid_text, word, strlen(word)) == 0)
                return cards[i];
        return SL_SIM_NONE;
    }
    unsigned long n = strtoul(word, &end, 10);
    return end != word && (*end == '\0' || *end == ' ') && n < count ? cards[n] : SL_SIM_NONE;
}

uint32_t sl_sim_choose_cards(const struct sl_sim_state *st, const char *list, const uint32_t *cards,
                             uint32_t count, uint32_t out[SL_SIM_MAX_DEVICES])
{
    uint32_t n = 0;
    if (!list) {
        memcpy(out, cards, count * sizeof(*out));
        return count;
    }
    SL_CLEANUP(free) char *copy = strdup(list);
    char *save = NULL;
    for (char *w = copy ? strtok_r(copy, ",", &save) : NULL; w && n < SL_SIM_MAX_DEVICES;
         w = strtok_r(NULL, ",", &save)) {
        out[n] = choose_one(st, w, cards, count);
        if (out[n] == SL_SIM_NONE)
            break;
        n++;
    }
    return n;
}
