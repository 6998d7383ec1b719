/* SPDX-License-Identifier: Apache-2.0 */
/*
 * old_arbiter SOCKET: an arbiter of a version that does not know every question of today. It has one tenant, "train",
 * on a GPU of its own invention; it answers SL_MSG_STATUS, gives everybody that GPU, and hangs up at everything else. It
 * ends with its input.
 */
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "shm/packet.h"

static int send_status(int fd)
{
    struct sl_msg_gpu gpu = {.total_bytes = 1ULL << 30, .tenants = 1};
    struct sl_msg_tenant tenant = {.processes = 1, .gpu_count = 1, .priority = SL_PRIORITY_NORMAL};
    struct sl_msg end;
    (void)snprintf(gpu.uuid, sizeof(gpu.uuid), "GPU-old");
    (void)snprintf(tenant.name, sizeof(tenant.name), "train");
    (void)snprintf(tenant.gpu[0].uuid, sizeof(tenant.gpu[0].uuid), "GPU-old");
    sl_packet_init(&gpu.h, SL_MSG_GPU, sizeof(gpu));
    sl_packet_init(&tenant.h, SL_MSG_TENANT, sizeof(tenant));
    sl_packet_init(&end, SL_MSG_END, sizeof(end));
    int rc = sl_packet_send(fd, &gpu.h, NULL, 0, NULL);
    if (rc == 0)
        rc = sl_packet_send(fd, &tenant.h, NULL, 0, NULL);
    return rc < 0 ? rc : sl_packet_send(fd, &end, NULL, 0, NULL);
}

static int send_created(int fd)
{
    struct sl_msg_created m = {.gpu_count = 1};
    (void)snprintf(m.name, sizeof(m.name), "t1");
    (void)snprintf(m.gpu[0], sizeof(m.gpu[0]), "GPU-old");
    sl_packet_init(&m.h, SL_MSG_CREATED, sizeof(m));
    return sl_packet_send(fd, &m.h, NULL, 0, NULL);
}

/* Until the client leaves, or asks something else. */
static void serve(int fd)
{
    union sl_packet got;
    int rc = 0;
    while (rc == 0 && sl_packet_recv(fd, &got, NULL, NULL) == 0)
        if (got.h.type == SL_MSG_STATUS)
            rc = send_status(fd);
        else
            rc = got.h.type == SL_MSG_CREATE ? send_created(fd) : -1;
    (void)close(fd);
}

int main(int argc, char **argv)
{
    int listener = argc == 2 ? sl_packet_listen(argv[1], 4, NULL) : -1;
    struct pollfd wait[] = {{.fd = STDIN_FILENO, .events = POLLIN},
                            {.fd = listener, .events = POLLIN}};
    if (listener < 0)
        return 1;
    while (poll(wait, 2, -1) > 0 && !wait[0].revents) {
        int fd = accept(listener, NULL, NULL);
        if (fd >= 0)
            serve(fd);
    }
    return 0;
}
