/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A loop whose clock a test may push forward, and a fake API server in it that writes the test's bytes exactly: whole
 * answers, streams, halves of lines, nothing at all.
 */
#ifndef SLUICE_TESTS_HTTP_WORLD_H
#define SLUICE_TESTS_HTTP_WORLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/loop.h"
#include "kube/kube.h"

struct fake;
struct fake_conn {
    struct sl_source source;
    struct fake *fake;
    struct fake_conn *next;
    char in[64 << 10];
    size_t in_size;
    char *out;
    size_t out_size, out_sent;
    bool closing, dead;
};

struct fake {
    struct sl_loop *loop;
    struct sl_source listener;
    unsigned port, accepted, requests;
    struct fake_conn *conns;
    /* path with query; body NUL-terminated */
    void (*handle)(void *data, struct fake_conn *conn, const char *method, const char *path,
                   const char *head, const char *body);
    void *data;
};

extern struct sl_loop *world_loop;
void world_open(void);
void world_close(void);
void world_jump(uint64_t ns); /* time passes */
void world_step(int timeout_ms);
/* Steps until *value reaches at_least. jump_ms: so much time passes with every step. */
void world_until(const unsigned *value, unsigned at_least, unsigned jump_ms);

void fake_open(struct fake *fake, unsigned port); /* port 0: any */
void fake_close(struct fake *fake);
void fake_cut(struct fake_conn *conn); /* after what is to be sent */
void fake_send(struct fake_conn *conn, const char *data, size_t size);
void fake_text(struct fake_conn *conn, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void fake_answer(struct fake_conn *conn, unsigned status, const char *json);
void fake_stream(struct fake_conn *conn); /* head of a chunked 200 */
void fake_chunk(struct fake_conn *conn, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

struct sl_kube *world_kube(const struct fake *fake, uint64_t timeout_ns);

#endif
