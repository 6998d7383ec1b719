/* SPDX-License-Identifier: Apache-2.0 */
/*
 * interop_client SOCKET METHOD SIZE [TIMEOUT_MS]: one call with SIZE bytes to a server that is not
 * ours. Prints the status, the number of answers, their bytes, and the message.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "rpc/client.h"

static unsigned messages;
static size_t bytes;
static bool done;

static void on_message(struct sl_rpc_call *call, const uint8_t *msg, size_t size, void *data)
{
    (void)call;
    (void)msg;
    (void)data;
    messages++;
    bytes += size;
}

static void on_done(struct sl_rpc_call *call, enum sl_rpc_code code, const char *message,
                    void *data)
{
    (void)call;
    (void)data;
    done = true;
    printf("%s %u %zu %s\n", sl_rpc_code_name(code), messages, bytes, message);
}

int main(int argc, char **argv)
{
    static const struct sl_rpc_call_ops ops = {.message = on_message, .done = on_done};
    if (argc < 4) {
        fprintf(stderr, "usage: %s SOCKET METHOD SIZE [TIMEOUT_MS]\n", argv[0]);
        return 2;
    }
    size_t size = strtoull(argv[3], NULL, 10);
    uint64_t timeout_ns = argc > 4 ? strtoull(argv[4], NULL, 10) * SL_NS_PER_MS : SL_RPC_NO_TIMEOUT;
    uint8_t *msg = calloc(1, size + 1);
    struct sl_err err = SL_ERR_INIT;
    struct sl_loop *loop = NULL;
    struct sl_rpc_client *client = NULL;
    int rc = msg ? sl_loop_create(NULL, &loop, &err) : -1;
    if (rc == 0)
        rc = sl_rpc_client_connect(loop, argv[1], NULL, &client, &err);
    if (rc == 0)
        rc = sl_rpc_client_call(client, argv[2], msg, size, timeout_ns, &ops, NULL, NULL, &err);
    while (rc == 0 && !done)
        rc = sl_loop_step(loop, -1, &err);
    if (rc < 0)
        fprintf(stderr, "%s\n", err.msg);
    sl_rpc_client_destroy(client);
    sl_loop_destroy(loop);
    free(msg);
    return rc < 0;
}
