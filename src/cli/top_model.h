/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state of `sluice top`: samples of the arbiter's status with a minute of history, the selected tenant, sorting,
 * filter, and the action of each key. The model draws on a page in memory (screen.h). cmd_top.c talks to the arbiter
 * and to the terminal; the model does neither.
 */
#ifndef SLUICE_CLI_TOP_MODEL_H
#define SLUICE_CLI_TOP_MODEL_H

#include "arbiter/client.h"
#include "cli/screen.h"

#define SL_TOP_HISTORY 60 /* samples, one a second */
#define SL_TOP_USER    16

/* Keys that are no characters. */
enum sl_top_key {
    SL_KEY_UP = 0x1000,
    SL_KEY_DOWN,
    SL_KEY_PAGE_UP,
    SL_KEY_PAGE_DOWN,
    SL_KEY_HOME,
    SL_KEY_END,
    SL_KEY_ENTER,
    SL_KEY_ESCAPE,
    SL_KEY_BACKSPACE,
    SL_KEY_INTERRUPT, /* Ctrl-C leaves, whatever is shown */
};

enum sl_top_sort { SL_TOP_BY_NAME, SL_TOP_BY_GOT, SL_TOP_BY_MEMORY, SL_TOP_BY_WAIT, SL_TOP_SORTS };

/* The action that a key asks the program for. */
enum sl_top_action {
    SL_TOP_NOTHING,
    SL_TOP_QUIT,
    SL_TOP_SET,     /* `option` of `name` becomes `text` */
    SL_TOP_PAUSE,   /* pause `name`, or resume it if it is paused */
    SL_TOP_END,     /* the user said yes: end `name` */
    SL_TOP_REFRESH, /* other processes have to be shown */
};

struct sl_top_wish {
    enum sl_top_action action;
    char name[SL_NAME_MAX];
    const char *option; /* "cores", "memory", "priority" */
    char text[40];
};

enum sl_top_mode {
    SL_TOP_LIST,
    SL_TOP_HELP,
    SL_TOP_FILTER, /* the user types a filter in the line at the bottom */
    SL_TOP_VALUE,  /* … a new value of `option` */
    SL_TOP_SURE,   /* … the answer to a question */
};

struct sl_top_tenant {
    struct sl_msg_tenant m;
    char user[SL_TOP_USER];   /* the user who started the tenant; "": not known */
    uint32_t waited_permille; /* of the time since the last sample */
};

/* A command of `sluice run --wait` that stands in line. */
struct sl_top_waiter {
    struct sl_msg_waiter m;
    char user[SL_TOP_USER]; /* "": not known */
};

struct sl_top_gpu {
    struct sl_msg_gpu m;
    uint32_t time_permille; /* of GPU time that tenants got */
    uint16_t memory[SL_TOP_HISTORY], time[SL_TOP_HISTORY];
    uint32_t samples; /* number so far; the newest is at (samples - 1) % SL_TOP_HISTORY */
};

struct sl_top {
    struct sl_top_gpu *gpus;
    size_t gpu_count;
    struct sl_top_tenant *tenants; /* the tenants that are shown: sorted and filtered */
    size_t tenant_count, tenants_in_all;
    struct sl_top_waiter *waiters; /* all of them, the first first */
    size_t waiter_count;
    struct sl_msg_process *processes; /* of `unfolded` */
    size_t process_count;
    char untold[200]; /* why there are none; "": there are as many as are shown */
    uint64_t sampled_ns;
    char sim[64];      /* simulated cards; "": real ones */
    char trouble[400]; /* why there is nothing to show; "": there is something */

    enum sl_top_sort sort;
    char filter[32];
    char selected[SL_NAME_MAX];
    char unfolded[SL_NAME_MAX]; /* the tenant whose processes are shown; "": none */
    enum sl_top_mode mode;
    const char *option; /* in SL_TOP_VALUE */
    char typed[40];
    char message[400]; /* the result of the last wish */
};

void sl_top_free(struct sl_top *t);

/* A new sample. users: one for each tenant of the status, then one for each command in line; or NULL. */
void sl_top_take(struct sl_top *t, const struct sl_client_status *status,
                 const char (*users)[SL_TOP_USER], uint64_t now_ns);
/* The processes of the unfolded tenant; the list is the model's from now on. untold: why the arbiter cannot tell them, or
 * "". */
void sl_top_take_processes(struct sl_top *t, struct sl_msg_process *list, size_t count,
                           const char *untold);

/* The meaning of a key; most keys change the model alone. */
struct sl_top_wish sl_top_press(struct sl_top *t, int key);

/* The tenant that is selected, or NULL. */
const struct sl_top_tenant *sl_top_selected(const struct sl_top *t);

/* top_draw.c. clock: the time of day, as it is to be shown. once: no line of keys, no selection. */
void sl_top_draw(const struct sl_top *t, struct sl_screen *s, const char *clock, bool once);

#endif
