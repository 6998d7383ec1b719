/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The page: one HTML file in the program, and the JSON that it reads. A program brings its cards, tenants and waiters
 * as a source; filter, order, window and totals are made here, so that both programs answer alike. No I/O.
 *
 *   /ui        the page: no data, the same for everybody
 *   /ui/data   cards from=N, count=N of those that match find=TEXT, by sort=name|full|free; who waits
 *   /ui/fit    memory=10Gi, cores=30, gpus=1: where would it go?
 */
#ifndef SLUICE_PAGE_PAGE_H
#define SLUICE_PAGE_PAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* --- page.c --- */

#define SL_PAGE_PATH         "/ui"
#define SL_PAGE_DATA_PATH    "/ui/data"
#define SL_PAGE_FIT_PATH     "/ui/fit"
/* The header with the token. An API server that passes a request on takes `Authorization` for itself. */
#define SL_PAGE_TOKEN_HEADER "X-Sluice-Token"
#define SL_PAGE_TOKEN_LEAST  16 /* characters of a token */
#define SL_PAGE_TOKEN_MOST   256

const char *sl_page_html(size_t *ret_size);

/* Headers for every answer under /ui: no other origin may read, frame or extend it. A row without a name ends them. */
struct sl_page_header {
    const char *name, *value;
};
const struct sl_page_header *sl_page_headers(void);

/* In a time that does not depend on where they differ. given NULL: no. */
bool sl_page_token_same(const char *given, const char *token);
/* The token of a file's text: blanks and newlines around it do not count. -EINVAL: too short, too long, or not one word
 * of printable characters. */
int sl_page_token_read(const char *text, char ret[SL_PAGE_TOKEN_MOST + 1],
                       struct sl_err *err) SL_MUST_CHECK;
/* The token of a request, from X-Sluice-Token or from `Authorization: Bearer`; NULL: none. */
const char *sl_page_token_of(const char *own_header, const char *authorization);

/* Is this the Host of a loopback address with this port? A page of another site that resolved its own name to
 * 127.0.0.1 sends its own name here. */
bool sl_page_host_local(const char *host, unsigned port);

/* --- page_query.c --- */

enum sl_page_sort { SL_PAGE_BY_NAME, SL_PAGE_FULL_FIRST, SL_PAGE_FREE_FIRST };

#define SL_PAGE_COUNT_MAX 100 /* cards in one answer */
#define SL_PAGE_WAIT_MAX  20  /* waiters in one answer */
#define SL_PAGE_FIND_MAX  80

struct sl_page_ask {
    size_t from, count;
    size_t wait_from;
    enum sl_page_sort sort;
    char find[SL_PAGE_FIND_MAX + 1];
};
/* What is wrong or too large counts as the nearest that is right. */
void sl_page_ask_read(const char *query, struct sl_page_ask *ret);

/* What would fit where? */
struct sl_page_want {
    uint64_t memory_bytes;
    uint32_t memory_percent;                       /* instead of bytes */
    uint32_t cores_permille, cores_limit_permille; /* 0: nothing said */
    unsigned gpus;
};
int sl_page_want_read(const char *query, struct sl_page_want *ret,
                      struct sl_err *err) SL_MUST_CHECK;

/* --- page_data.c --- */

struct sl_page_card {
    const char *node; /* "" on one machine */
    const char *uuid, *model;
    const char *bad;               /* why the card takes nobody new; NULL: it does */
    const void *owner;             /* for the source */
    uint64_t memory_mib, free_mib; /* free: not promised */
    int64_t used_mib;              /* -1: not known */
    uint32_t index;
    uint32_t free_permille; /* of its time */
    int32_t got_permille;   /* of its time, by all; -1: not known */
};

struct sl_page_tenant {
    const char *name, *space;                /* space: namespace, or user; NULL */
    const char *state;                       /* a word; NULL: runs */
    const char *priority;                    /* NULL: not known */
    uint64_t memory_mib;                     /* promised; 0 with no_limit */
    int64_t used_mib;                        /* -1: not known */
    uint32_t cores_permille, limit_permille; /* promised; 0: none */
    int32_t got_permille;                    /* of the card's time; -1: not known */
    uint32_t processes;
    bool no_limit;
};

struct sl_page_waiter {
    const char *name, *space, *why, *said; /* why: ours; said: the scheduler's own words */
    const char *claim;                     /* the claim's template, where amounts are not known */
    const char *since;                     /* a time of the API server; NULL */
    uint64_t waited_ns;                    /* 0: see since */
    uint64_t memory_mib;
    uint32_t memory_percent, cores_permille, limit_permille, gpus;
};

typedef void sl_page_tenant_fn(void *to, const struct sl_page_tenant *tenant);
typedef void sl_page_waiter_fn(void *to, const struct sl_page_waiter *waiter);

struct sl_page_source {
    const char *kind; /* cluster, machine */
    const char *title;
    const char *note;                 /* what the reader should know of these figures; NULL */
    const char *simulated;            /* NULL: the cards are real */
    const struct sl_page_card *cards; /* by name */
    size_t card_count, nodes, tenants, waiting;
    /* Calls `each` for each tenant of the card. */
    void (*each_tenant)(const struct sl_page_source *s, const struct sl_page_card *card,
                        sl_page_tenant_fn *each, void *to);
    /* … for each waiter from this one on, at most so many. */
    void (*each_waiter)(const struct sl_page_source *s, size_t from, size_t count,
                        sl_page_waiter_fn *each, void *to);
    void *data;
};

/* JSON, to be freed. */
char *sl_page_data(const struct sl_page_source *source, const struct sl_page_ask *ask,
                   size_t *ret_size);

/* Where it would go: to these cards. */
struct sl_page_place {
    const char *node; /* NULL: nowhere */
    const char *by;   /* who decides: engine, scheduler */
    const char *why;  /* nowhere: why */
    struct {
        uint32_t index;
        const char *uuid, *model;
    } card[16];
    size_t card_count;
    size_t fitting, cards; /* cards with room for it, and all */
};
char *sl_page_fit(const struct sl_page_want *want, const struct sl_page_place *place,
                  size_t *ret_size);
char *sl_page_error(const char *message, size_t *ret_size);
/* Has the card room for it? */
bool sl_page_card_fits(const struct sl_page_card *card, const struct sl_page_want *want);

#endif
