/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The line in which commands wait for room on a GPU. Pure: the time is a parameter, and whether there is room is a
 * question to the caller.
 *
 * A higher priority stands before a lower one; within a priority, first come, first served. A command does not take a
 * GPU that an earlier command waits for, also where it would fit and the earlier one does not: else a stream of small
 * commands would keep a large one waiting for ever. A command that needs several GPUs holds none while it waits: it
 * gets all of them at once, so two such commands cannot wait for each other. A command that waits because its own user
 * has too much holds up nobody: only that user can end the wait.
 */
#ifndef SLUICE_POLICY_LINE_H
#define SLUICE_POLICY_LINE_H

#include <stdbool.h>
#include <stdint.h>

#define SL_LINE_MAX       1024 /* places */
#define SL_LINE_GPUS      128
/* A process that is called has this long to answer. A stopped one does not answer, and is passed over until it does. */
#define SL_LINE_ANSWER_NS 5000000000ULL
/* After a restart of the arbiter, a place is kept this long for a process that still lives. */
#define SL_LINE_RETURN_NS 10000000000ULL

/* A set of GPUs. */
struct sl_line_gpus {
    uint64_t word[SL_LINE_GPUS / 64];
};

enum sl_line_state {
    SL_LINE_WAITING,
    SL_LINE_CALLED, /* there is room, and the process was told so: it may take the room until until_ns */
    SL_LINE_ASLEEP, /* it did not take the room: it holds up no other place until it asks again */
    SL_LINE_ABSENT, /* it stood here before a restart: until until_ns it may come back */
};

struct sl_line_place {
    struct sl_line_place *next;
    uint64_t number; /* an earlier place has a lower number */
    uint32_t priority;
    enum sl_line_state state;
    uint64_t until_ns;
    struct sl_line_gpus wants; /* not known of an absent place, which holds up every GPU */
    uint32_t need;             /* so many of them are enough, all at once */
    bool held;                 /* a limit of its own user keeps it waiting: the caller's word */
};

struct sl_line {
    struct sl_line_place *first;
    uint32_t count;
    uint64_t last_number;
};

void sl_line_gpus_add(struct sl_line_gpus *set, uint32_t gpu);
bool sl_line_gpus_has(const struct sl_line_gpus *set, uint32_t gpu);

/* Stands behind all of its priority. `priority`, `wants` and `need` are set. False: the line is full. */
bool sl_line_join(struct sl_line *line, struct sl_line_place *place);
/* Stands where it stood before a restart, by its number, and is absent. False: the line is full. */
bool sl_line_keep(struct sl_line *line, struct sl_line_place *place, uint64_t now_ns);
void sl_line_leave(struct sl_line *line, struct sl_line_place *place);

/* The GPUs that earlier places wait for; place NULL: all places that a new one of this priority would stand behind. */
struct sl_line_gpus sl_line_before(const struct sl_line *line, const struct sl_line_place *place,
                                   uint32_t priority);

/* Calls the next place whose turn it is, and returns it; NULL: there is none. `fits` says whether there is room on the GPUs
 * that are not barred. */
typedef bool (*sl_line_fits)(void *arg, struct sl_line_place *place,
                             const struct sl_line_gpus *barred);
struct sl_line_place *sl_line_call(struct sl_line *line, uint64_t now_ns, sl_line_fits fits,
                                   void *arg);

/* Passes over places that did not answer. Returns an absent place whose time is over, for the caller to take out. */
struct sl_line_place *sl_line_expire(struct sl_line *line, uint64_t now_ns);
uint64_t sl_line_due(const struct sl_line *line); /* when sl_line_expire has something to do */

/* 1 is the first. Places that are asleep are not counted. */
uint32_t sl_line_position(const struct sl_line *line, const struct sl_line_place *place,
                          uint32_t *ret_count);

#endif
